//! Standard error: lines, and below them a bar if somebody is looking.
use std::io::{IsTerminal, Write, stderr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::input::Input;
use crate::tally::Tally;

/// Where everything is said that is not the result. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Screen(Arc<OnceLock<ProgressBar>>);

impl Screen {
    /// Shows a bar on a terminal.
    pub(crate) fn begin(&self, input: &Input) {
        if input.is_terminal {
            return self.say("reading deliveries from the terminal, one JSON object a line; Ctrl-D ends");
        }
        if !stderr().is_terminal() {
            return;
        }
        let (bar, style) = match input.size {
            Some(size) => (ProgressBar::new(size), "{bar:30} {percent:>3} %  {msg}"),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        // There is no other: this is called once.
        let _ = self.0.set(bar);
    }

    /// One more line is settled.
    pub(crate) fn settled(&self, bytes: usize, tally: &Tally) {
        if let Some(bar) = self.0.get() {
            bar.set_message(tally.to_string());
            bar.inc(bytes as u64);
        }
    }

    /// The bar goes.
    pub(crate) fn end(&self) {
        if let Some(bar) = self.0.get() {
            bar.finish_and_clear();
        }
    }

    /// A line. That nobody reads it any more is no reason to stop.
    pub(crate) fn say(&self, line: &str) {
        let write = || writeln!(stderr(), "{line}");
        let _ = match self.0.get() {
            Some(bar) => bar.suspend(write),
            None => write(),
        };
    }
}

/// Somebody wants it to end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Interrupt,
    Terminate,
}

impl Signal {
    /// The exit code that shells know.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// Says that the job stops; a second signal ends it at once.
pub(crate) fn stopping(screen: &Screen) {
    screen.say("stopping: no new delivery is begun, running handlers have 10 s (again: stop at once)");
    tokio::spawn(async { std::process::exit(interrupted().await.code().into()) });
}

/// Ends at Ctrl-C, or when told to terminate.
pub(crate) async fn interrupted() -> Signal {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = interrupt => Signal::Interrupt,
        () = terminated() => Signal::Terminate,
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};

    match signal(SignalKind::terminate()) {
        Ok(mut signal) => _ = signal.recv().await,
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

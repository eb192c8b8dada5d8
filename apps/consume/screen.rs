//! Standard error: lines, and on a terminal a status line below them.
use std::io::{IsTerminal, Stderr, Write, stderr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::input::Input;
use crate::tally::Tally;

/// The interval between two updates of the status line.
const TICK: Duration = Duration::from_millis(100);

/// Returns to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// The output for everything except the result. Clones are cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Screen(Arc<OnceLock<Mutex<Status>>>);

/// The status line.
#[derive(Debug)]
struct Status {
    /// Bytes of the input, where they are known.
    size: Option<u64>,
    done: u64,
    written: Option<Instant>,
}

impl Screen {
    /// Shows a status line on a terminal.
    pub(crate) fn begin(&self, input: &Input) {
        if input.is_terminal {
            return self.say("reading deliveries from the terminal, one JSON object a line; Ctrl-D ends");
        }
        if stderr().is_terminal() {
            self.0.get_or_init(|| Mutex::new(Status { size: input.size, done: 0, written: None }));
        }
    }

    /// One more line is settled.
    pub(crate) fn settled(&self, bytes: usize, tally: &Tally) {
        self.with(|status| {
            status.done += bytes as u64;
            if status.written.is_none_or(|written| written.elapsed() >= TICK) {
                status.written = Some(Instant::now());
                let percent = status.size.filter(|size| *size > 0).map(|size| status.done * 100 / size);
                let percent = percent.map_or_else(String::new, |percent| format!("{:>3} %  ", percent.min(100)));
                // A terminal that is gone is no reason to stop.
                let _ = write!(stderr(), "{CLEAR}{percent}{tally}");
            }
        });
    }

    /// Clears the status line.
    pub(crate) fn end(&self) {
        self.with(Status::clear);
    }

    /// Writes a line. A reader that is gone is no reason to stop.
    pub(crate) fn say(&self, line: &str) {
        self.with(Status::clear);
        let _ = writeln!(stderr(), "{line}");
    }

    /// Clears the status line for lines that others write.
    pub(crate) fn line(&self) -> Stderr {
        self.with(Status::clear);
        stderr()
    }

    fn with(&self, change: impl FnOnce(&mut Status)) {
        if let Some(status) = self.0.get() {
            change(&mut status.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Status {
    fn clear(&mut self) {
        if self.written.take().is_some() {
            let _ = write!(stderr(), "{CLEAR}");
        }
    }
}

/// A signal to stop.
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

/// Waits for Ctrl-C or SIGTERM.
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

//! How the process begins and ends.
use std::io::{self, Write, stderr, stdout};
use std::time::Duration;

use anyhow::bail;
use axum::Router;
use axum::serve::ListenerExt;
use idempotent::Executor;
use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// What requests that have come in, and runs, have at the end.
const GRACE: Duration = Duration::from_secs(30);

/// Serves until it is told to end. Then no connection is accepted, requests that are here are answered, and runs whose
/// client has gone come to their end, too.
pub(crate) async fn until_stopped(listener: TcpListener, app: Router, executor: &Executor) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    let mut stop = Stop::listen()?;
    // Small answers must not wait for the acknowledgement of those before.
    let listener = listener.tap_io(|connection| _ = connection.set_nodelay(true));
    writeln!(stdout(), "listening on http://{address}")?;
    stdout().flush()?;
    let (told, again) = oneshot::channel();
    let first = async {
        stop.told().await;
        say("ending: what runs has 30 s (again: end at once)");
        // The other end is there as long as this function.
        let _ = told.send(stop);
    };
    let serving = executor
        .serve_until(first, GRACE, async |stopped| axum::serve(listener, app).with_graceful_shutdown(stopped).await);
    let second = async {
        match again.await {
            Ok(mut stop) => stop.told().await,
            Err(_) => std::future::pending().await,
        }
    };
    let served = tokio::select! {
        served = serving => served,
        () = second => bail!("told twice: the keys of runs that were left are free when their leases are over"),
    };
    if served.output.transpose()?.is_none() {
        say("some connections did not end");
    }
    if served.drained.abandoned > 0 {
        say(&format!("{} runs did not end: their keys are free when their leases are over", served.drained.abandoned));
    }
    Ok(())
}

/// SIGTERM and Ctrl-C.
#[cfg(unix)]
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

#[cfg(unix)]
impl Stop {
    /// From now on.
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
struct Stop;

#[cfg(not(unix))]
impl Stop {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn told(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// That nobody reads it any more is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

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
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// What requests that have come in, and runs, have at the end.
const GRACE: Duration = Duration::from_secs(30);

/// Serves until it is told to end. Then no connection is accepted, requests that are here are answered, and runs whose
/// client has gone come to their end, too.
pub(crate) async fn until_stopped(listener: TcpListener, app: Router, executor: &Executor) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    let mut stop = Stop::listen()?;
    // Small answers must not wait for the acknowledgement of those before.
    let listener = listener.tap_io(|connection| _ = connection.set_nodelay(true));
    let (told, stopped) = oneshot::channel::<()>();
    let serving = axum::serve(listener, app).with_graceful_shutdown(async { _ = stopped.await });
    let serving = tokio::spawn(serving.into_future());
    writeln!(stdout(), "listening on http://{address}")?;
    stdout().flush()?;
    stop.told().await;
    say("ending: what runs has 30 s (again: end at once)");
    drop(told);
    tokio::select! {
        () = finish(serving, executor) => Ok(()),
        () = stop.told() => bail!("told twice: the keys of runs that were left are free when their leases are over"),
    }
}

/// Connections first: what has come in is not refused. One that does not get done with its request is left.
async fn finish(serving: JoinHandle<io::Result<()>>, executor: &Executor) {
    let end = Instant::now() + GRACE;
    if timeout_at(end, serving).await.is_err() {
        say("some connections did not end");
    }
    let drained = executor.drain(end.saturating_duration_since(Instant::now())).await;
    if drained.abandoned > 0 {
        say(&format!("{} runs did not end: their keys are free when their leases are over", drained.abandoned));
    }
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

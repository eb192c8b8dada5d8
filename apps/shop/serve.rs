//! Start and shutdown of the process.
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

/// The time for requests and runs to complete after a stop signal.
const GRACE: Duration = Duration::from_secs(30);

/// Serves until the first stop signal, and then drains: no connection is accepted, and requests in progress and runs
/// without a client complete. A second signal stops at once.
pub(crate) async fn until_stopped(listener: TcpListener, app: Router, executor: &Executor) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    let mut stop = StopSignals::listen()?;
    // Without this, small responses wait for the acknowledgement of earlier ones.
    let listener = listener.tap_io(|connection| _ = connection.set_nodelay(true));
    writeln!(stdout(), "listening on http://{address}")?;
    stdout().flush()?;
    let (first_received, second) = oneshot::channel();
    let first = async {
        stop.received().await;
        say("shutting down: waiting up to 30 s for runs; send the signal again to stop at once");
        // The receiver lives as long as this function.
        let _ = first_received.send(stop);
    };
    let serving = executor
        .serve_until(first, GRACE, async |stopped| axum::serve(listener, app).with_graceful_shutdown(stopped).await);
    let stop_again = async {
        match second.await {
            Ok(mut stop) => stop.received().await,
            Err(_) => std::future::pending().await,
        }
    };
    let served = tokio::select! {
        served = serving => served,
        () = stop_again => bail!("second signal: stopped before all runs completed; their keys are free after their leases"),
    };
    if served.output.transpose()?.is_none() {
        say("shutdown: some connections did not close in time");
    }
    if served.drained.abandoned > 0 {
        say(&format!(
            "shutdown: {} runs did not complete; their keys are free when their leases expire",
            served.drained.abandoned
        ));
    }
    Ok(())
}

/// The stop signals: SIGTERM and Ctrl-C.
#[cfg(unix)]
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

#[cfg(unix)]
impl StopSignals {
    /// Starts to listen.
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The stop signal: Ctrl-C.
#[cfg(not(unix))]
struct StopSignals;

#[cfg(not(unix))]
impl StopSignals {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn received(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Writes a line to standard error. A closed standard error is ignored.
pub(crate) fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

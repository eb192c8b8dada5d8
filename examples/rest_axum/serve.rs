//! How the process begins and ends.
use std::io::{Write, stderr, stdout};
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt;
use idempotent::Executor;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// What requests that have come in, and runs, have at the end.
const GRACE: Duration = Duration::from_secs(30);

/// Serves until it is told to end. Then no connection is accepted, requests that are here are answered, and runs whose
/// client has gone come to their end, too.
pub(crate) async fn until_stopped(listener: TcpListener, app: Router, executor: &Executor) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    let stop = stop_signal()?;
    // Small answers must not wait for the acknowledgement of those before.
    let listener = listener.tap_io(|connection| _ = connection.set_nodelay(true));
    let (told, stopped) = oneshot::channel::<()>();
    let serving = axum::serve(listener, app).with_graceful_shutdown(async { _ = stopped.await });
    let serving = tokio::spawn(serving.into_future());
    writeln!(stdout(), "listening on http://{address}")?;
    stdout().flush()?;
    stop.await;
    say("ending: what runs has 30 s");
    drop(told);
    let end = Instant::now() + GRACE;
    // Connections first: what has come in is not refused. One that does not get done with its request is left.
    if timeout_at(end, serving).await.is_err() {
        say("some connections did not end");
    }
    let drained = executor.drain(end.saturating_duration_since(Instant::now())).await;
    if drained.abandoned > 0 {
        say(&format!("{} runs did not end: their keys are free when their leases are over", drained.abandoned));
    }
    Ok(())
}

/// Listens from now on.
#[cfg(unix)]
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

/// That nobody reads it any more is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

//! Graceful shutdown: draining the executor, and serving until a stop signal.
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use super::Executor;
use crate::clock::{before, later};
use crate::engine::DrainPhase;

/// A future that completes when a server has to shut down gracefully; see [`Executor::serve_until`].
#[derive(Debug)]
pub struct Stopped(oneshot::Receiver<()>);

impl Future for Stopped {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

/// The result of a server and of its last runs.
#[derive(Debug)]
#[must_use]
pub struct Served<T> {
    /// The result of the server, or `None` if the last run ended before the server.
    pub output: Option<T>,
    /// The runs that continued after their connections.
    pub drained: Drained,
}

/// The result of a drain for the runs in flight at its start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Drained {
    /// The number of runs that ended by themselves within the grace. Calls rejected during the drain do not count.
    pub finished: usize,
    /// The number of handlers dropped after the grace. Their effects are unknown and their keys are held until the
    /// leases expire. Their deliveries end as `abandoned` and must be redelivered.
    pub abandoned: usize,
}

impl Executor {
    /// Shuts the executor down gracefully and permanently. Stop polling deliveries first.
    ///
    /// From here on, calls are rejected as `Draining`. A claim that was granted before its handler started is released
    /// without counting the attempt. Runs in flight continue with their nested runs, and their leases are renewed.
    /// Handlers that have not ended after `grace` are dropped at their next await. A store that does not answer gets
    /// another second.
    ///
    /// Returns when the last run has ended or was dropped.
    ///
    /// # Cancellation
    /// Dropping the future leaves the executor draining, without an end of the grace.
    pub async fn drain(&self, grace: Duration) -> Drained {
        let drain = &self.0.drain;
        let (running, abandoned_before) = (drain.in_progress(), drain.abandoned());
        drain.advance(DrainPhase::Draining);
        let deadline = later(self.0.clock.now(), grace);
        if before(&*self.0.clock, deadline, drain.wait_until_idle()).await.is_none() {
            self.0.end_grace();
            drain.wait_until_idle().await;
        }
        // Also counts handlers that another drain with a shorter grace has dropped.
        let abandoned = drain.abandoned().saturating_sub(abandoned_before).min(running);
        Drained { finished: running - abandoned, abandoned }
    }

    /// Returns true after [`drain`](Self::drain) was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.is_draining()
    }

    /// Runs a server until `stop` completes, then shuts the server down gracefully and [drains](Self::drain) the
    /// executor.
    ///
    /// The server first stops accepting connections and answers requests in progress. The drain then waits for runs
    /// whose clients have disconnected, which no server waits for. If the process exited during such a run, the key
    /// would stay held until its lease expires, and a retry would run the handler a second time. The shutdown takes at
    /// most `grace`, plus some seconds for settlements. Handlers that have not ended after `grace` are abandoned. A
    /// compensation in progress is completed.
    ///
    /// `serve` gets the future for the server's graceful shutdown. A server that ends by itself is drained as well.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use idempotent_core::Executor;
    /// # async fn example(executor: Executor) {
    /// let stop = async { _ = tokio::signal::ctrl_c().await };
    /// let serving = executor.serve_until(stop, Duration::from_secs(30), async |stopped| {
    ///     // axum::serve(listener, app).with_graceful_shutdown(stopped).await
    /// #   stopped.await
    /// });
    /// if serving.await.drained.abandoned > 0 {
    ///     eprintln!("some runs did not end: their keys are free when their leases end");
    /// }
    /// # }
    /// ```
    ///
    /// # Cancellation
    /// Dropping the future drops the server. Detached runs continue in their tasks.
    pub async fn serve_until<F: Future>(
        &self,
        stop: impl Future<Output = ()>,
        grace: Duration,
        serve: impl FnOnce(Stopped) -> F,
    ) -> Served<F::Output> {
        let clock = &*self.0.clock;
        let (stop_sender, stopped) = oneshot::channel();
        let serving = pin!(serve(Stopped(stopped)));
        match select(pin!(stop), serving).await {
            Either::Left(((), mut serving)) => {
                drop(stop_sender);
                let end = later(clock.now(), grace);
                if let Some(output) = before(clock, end, serving.as_mut()).await {
                    let drained = self.drain(end.saturating_duration_since(clock.now())).await;
                    return Served { output: Some(output), drained };
                }
                // The server is still polled: its handlers may run inside its own future, and end only there.
                match select(pin!(self.drain(Duration::ZERO)), serving).await {
                    Either::Left((drained, _)) => Served { output: None, drained },
                    Either::Right((output, draining)) => Served { output: Some(output), drained: draining.await },
                }
            }
            Either::Right((output, _)) => Served { output: Some(output), drained: self.drain(grace).await },
        }
    }
}

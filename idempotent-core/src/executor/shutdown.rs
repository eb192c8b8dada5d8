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

/// A future that ends when a server is to shut down gracefully; see [`Executor::serve_until`].
#[derive(Debug)]
pub struct Stopped(oneshot::Receiver<()>);

impl Future for Stopped {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

/// The end of a server and of the runs that it had begun.
#[derive(Debug)]
#[must_use]
pub struct Served<T> {
    /// The result of the server; `None` if the server had not ended when the last run had.
    pub output: Option<T>,
    /// The runs that went on after their connections.
    pub drained: Drained,
}

/// What became of the runs in flight when draining began.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Drained {
    /// Ended by themselves within the grace; calls refused meanwhile do not count.
    pub finished: usize,
    /// Handlers dropped at the end of the grace. Their effect is unknown: their keys are left to their leases,
    /// their deliveries end as `abandoned` and must be delivered again.
    pub abandoned: usize,
}

impl Executor {
    /// Graceful shutdown, for good. From here on a call is answered `Draining`, and a claim that was granted but
    /// whose handler had not started is given back, its attempt not counted. Runs in flight go on, with the runs
    /// inside them, and their leases are renewed; those that have not ended after `grace` are dropped at their next
    /// await, and a store that does not answer is given a second more.
    ///
    /// Stop pulling deliveries first. Ends when the last run has ended or was dropped.
    ///
    /// # Cancellation
    /// Dropping it leaves the executor draining, without an end of the grace.
    pub async fn drain(&self, grace: Duration) -> Drained {
        let drain = &self.0.drain;
        let (running, abandoned_before) = (drain.in_progress(), drain.abandoned());
        drain.advance(DrainPhase::Draining);
        let deadline = later(self.0.clock.now(), grace);
        if before(&*self.0.clock, deadline, drain.wait_until_idle()).await.is_none() {
            drain.advance(DrainPhase::GraceEnded);
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

    /// Runs a server until `stop` completes, then shuts the server down gracefully and [drains](Self::drain) the executor.
    /// The server first stops accepting connections and answers requests in progress. The drain then waits for runs whose
    /// clients have disconnected, which no server waits for. If the process exited during such a run, the key would stay
    /// held until its lease expires, and a retry would run the handler a second time. The shutdown takes at most `grace`,
    /// plus some seconds for settlements. Handlers that have not ended after `grace` are abandoned. A compensation of a step
    /// that has begun goes on to its end.
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
    /// Dropping the future drops the server. Detached runs go on in their tasks.
    pub async fn serve_until<F: Future>(
        &self,
        stop: impl Future<Output = ()>,
        grace: Duration,
        serve: impl FnOnce(Stopped) -> F,
    ) -> Served<F::Output> {
        let clock = &*self.0.clock;
        let (tell, told) = oneshot::channel();
        let serving = pin!(serve(Stopped(told)));
        match select(pin!(stop), serving).await {
            Either::Left(((), mut serving)) => {
                drop(tell);
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

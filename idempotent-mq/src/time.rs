//! Timeouts and pauses by an injected clock.
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use idempotent_core::Clock;

/// Returns the output of `future`, or `None` after the limit. The limit counts from the first poll that finds the future pending,
/// because a future that is ready at once needs no timer.
pub(crate) async fn within<F: Future>(clock: &dyn Clock, limit: Duration, future: F) -> Option<F::Output> {
    let (mut future, mut over) = (pin!(future), None);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            let over = over.get_or_insert_with(|| clock.sleep_until(clock.now() + limit));
            over.as_mut().poll(context).map(|()| None)
        }
    })
    .await
}

/// Waits for this time.
pub(crate) async fn pause(clock: &dyn Clock, time: Duration) {
    clock.sleep_until(clock.now() + time).await;
}

//! Timeouts and pauses by an injected clock.
use std::future::Future;
use std::time::Duration;

use idempotent_core::Clock;

/// Returns the output of `future`, or `None` after the limit.
pub(crate) async fn within<F: Future>(clock: &dyn Clock, limit: Duration, future: F) -> Option<F::Output> {
    let over = clock.sleep_until(clock.now() + limit);
    tokio::select! {
        biased;
        output = future => Some(output),
        () = over => None,
    }
}

/// Waits for this time.
pub(crate) async fn pause(clock: &dyn Clock, time: Duration) {
    clock.sleep_until(clock.now() + time).await;
}

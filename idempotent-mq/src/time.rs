//! Waiting by a clock that is handed in.
use std::future::Future;
use std::time::Duration;

use idempotent_core::Clock;

/// `future`, or `None` once this much time has passed.
pub(crate) async fn within<F: Future>(clock: &dyn Clock, limit: Duration, future: F) -> Option<F::Output> {
    let over = clock.sleep_until(clock.now() + limit);
    tokio::select! {
        biased;
        output = future => Some(output),
        () = over => None,
    }
}

/// Waits.
pub(crate) async fn pause(clock: &dyn Clock, time: Duration) {
    clock.sleep_until(clock.now() + time).await;
}

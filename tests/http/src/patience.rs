//! Waiting for events that must happen.
use std::future::Future;
use std::time::{Duration, Instant};

/// The timeout for events that must happen, on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
pub async fn until(what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !happened().await {
        assert!(began.elapsed() < PATIENCE, "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Awaits a future that must complete soon.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for: {what}"),
    }
}

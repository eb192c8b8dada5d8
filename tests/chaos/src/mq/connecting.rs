//! Connections to a broker that may be away.
use std::time::Duration;

use idempotent::mq::SourceError;

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Returns the source once the broker can be reached.
pub(super) async fn connected<S, F>(connect: impl Fn() -> F) -> S
where
    F: Future<Output = Result<S, SourceError>>,
{
    loop {
        match connect().await {
            Ok(source) => return source,
            Err(error) => eprintln!("not connected: {error}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

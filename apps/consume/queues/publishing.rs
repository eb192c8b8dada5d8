//! Publishing of lines, several at a time.
use std::time::Duration;

use anyhow::anyhow;
use futures_util::{StreamExt, TryStreamExt, stream};
use idempotent::mq::{OutboundMessage, Publish, PublishError, PublishErrorKind};
use tokio::time::{Instant, sleep};

use super::outgoing::Lines;
use super::{Address, told};

/// Messages under way at once.
const IN_FLIGHT: usize = 16;
/// The time for which an unreachable broker is retried.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// Publishes the lines to a topic, with retries. Returns the number of confirmed messages.
pub(super) async fn publish(
    publisher: &dyn Publish,
    topic: &str,
    place: &Address,
    lines: Lines,
) -> anyhow::Result<u64> {
    send_each(lines, (topic, place), IN_FLIGHT, async |message: &_| insist(publisher, message).await).await
}

/// Sends each line as a message to a topic of `place`. Returns the number of confirmed messages.
pub(super) async fn send_each(
    lines: Lines,
    (topic, place): (&str, &Address),
    in_flight: usize,
    send: impl AsyncFn(&OutboundMessage) -> Result<(), PublishError>,
) -> anyhow::Result<u64> {
    let send = &send;
    let lines = stream::unfold(lines, async |mut lines| Some((lines.recv().await?, lines)));
    let sending = lines.map(|line| async move {
        let line = line?;
        let sent = send(&OutboundMessage::new(topic, line.id, line.body)).await;
        sent.map_err(|error| anyhow!("line {} for {place}: {}", line.number, told(&error)))
    });
    sending.buffer_unordered(in_flight).try_fold(0, async |sent, ()| Ok(sent + 1)).await
}

/// Publishes a message until the broker confirms or refuses it, or the time is over. A retry of an unconfirmed message may
/// store it twice, under one id.
async fn insist(publisher: &dyn Publish, message: &OutboundMessage) -> Result<(), PublishError> {
    let end = Instant::now() + PATIENCE;
    loop {
        let sent: Result<Vec<_>, _> = publisher.publish(std::slice::from_ref(message)).await.into_iter().collect();
        match sent {
            Err(error) if error.kind() != PublishErrorKind::Refused && Instant::now() + PAUSE < end => {
                sleep(PAUSE).await;
            }
            sent => return sent.map(drop),
        }
    }
}

//! Publishing of lines by a [`Publish`], with retries.
use std::time::Duration;

use anyhow::anyhow;
use futures_util::{StreamExt, TryStreamExt, stream};
use idempotent::mq::{OutboundMessage, Publish, PublishError, PublishErrorKind};
use tokio::time::{Instant, sleep};

use super::outgoing::Lines;
use super::told;

/// Messages under way at once.
const IN_FLIGHT: usize = 16;
/// The time for which an unreachable broker is retried.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// Publishes the lines to a topic of `place`. Returns the number of confirmed messages.
pub(super) async fn publish(
    publisher: &dyn Publish,
    topic: &str,
    place: &impl ToString,
    lines: Lines,
) -> anyhow::Result<u64> {
    let lines = stream::unfold(lines, async |mut lines| Some((lines.recv().await?, lines)));
    let sending = lines.map(|line| async move {
        let line = line?;
        let sent = insist(publisher, &OutboundMessage::new(topic, line.id, line.body)).await;
        sent.map_err(|error| anyhow!("line {} for {}: {}", line.number, place.to_string(), told(&error)))
    });
    sending.buffer_unordered(IN_FLIGHT).try_fold(0, async |sent, ()| Ok(sent + 1)).await
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

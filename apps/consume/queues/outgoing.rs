//! The lines of a file, and their publishing, several at a time.
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use futures_util::{StreamExt, TryStreamExt, stream};
use idempotent::mq::{OutboundMessage, Publish, PublishError, PublishErrorKind};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{Address, told};
use crate::delivery::is_blank;
use crate::input::{Input, LONGEST};

/// A line without its end.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Counted from 1, blank lines too.
    pub(crate) number: u64,
    /// The id, derived from number and content: the same whenever the file is published.
    pub(crate) id: String,
    pub(crate) body: Vec<u8>,
}

pub(crate) type Lines = mpsc::Receiver<anyhow::Result<Outgoing>>;

/// Lines read ahead.
const AHEAD: usize = 64;

/// Reads on a separate thread. Malformed lines are messages too: the consumer dead-letters them.
pub(crate) fn read(mut input: Input) -> Lines {
    let (lines, receiver) = mpsc::channel(AHEAD);
    thread::spawn(move || {
        for number in 1.. {
            let line = match input.line() {
                Ok(None) => return,
                Ok(Some(line)) if is_blank(&line) => continue,
                Ok(Some(line)) if line.len() > LONGEST => {
                    Err(anyhow!("line {number} of {} is longer than {LONGEST} bytes: no broker takes it", input.source))
                }
                line => line.map(|line| outgoing(number, line.unwrap_or_default())),
            };
            let broken = line.is_err();
            // The receiver has ended, or the input is broken.
            if lines.blocking_send(line).is_err() || broken {
                return;
            }
        }
    });
    receiver
}

fn outgoing(number: u64, mut body: Vec<u8>) -> Outgoing {
    if body.ends_with(b"\n") {
        body.pop();
    }
    let digest: String = Sha256::digest(&body)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Outgoing { number, id: format!("{number}-{digest}"), body }
}

/// Messages under way at once.
pub(super) const IN_FLIGHT: usize = 16;
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

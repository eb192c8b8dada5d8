//! Publishing many messages over few channels. Messages that fail in a batch are sent again separately.
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use futures_util::future::join_all;
use idempotent_mq::{OutboundMessage, PublishError, Published, chains};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use super::RabbitPublisher;
use super::outcome::{AttemptOutcome, KnownState};
use super::state::PublisherState;
use crate::frame_limit::fits_any_frame;
use crate::message::{EncodedMessage, RabbitProperties};
use crate::publish_connection::{BatchMessage, PublishConnection, PublishFailure};

/// Maximum number of messages in a batch. If a confirm is missing, the whole batch is sent again.
const MAX_BATCH: usize = 128;
/// Maximum size of a batch in bytes, which is confirmed in time over a slow connection.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// Maximum size of a message in a batch. The broker may reject a larger message, which closes the channel.
const MAX_SHARED_BYTES: usize = 256 << 10;

/// The remaining messages of an aggregate, which are sent in order.
struct MessageChain {
    /// Indices of the messages.
    left: VecDeque<usize>,
    /// The known state of the first message.
    known: KnownState,
}

type PublishResult = Result<Published, PublishError>;
/// The results of a batch. An error contains whether any message was sent, and the cause.
type BatchResult = Result<Vec<Result<(), PublishFailure>>, (bool, Option<lapin::Error>)>;

impl RabbitPublisher {
    /// Publishes the first message of each chain in batches, as long as all batches succeed, and then each chain
    /// separately.
    ///
    /// The time limit includes waiting for permits. A relay gives up on the whole call, so the call must report the
    /// unsent messages before that. Otherwise an outage would use up the resends of these messages.
    pub(super) async fn publish_batch(&self, messages: &[OutboundMessage]) -> Vec<PublishResult> {
        let end = Instant::now() + self.0.give_up_after;
        let shared: Vec<_> = messages.iter().map(shareable).collect();
        let mut results: Vec<Option<PublishResult>> = Vec::new();
        results.resize_with(messages.len(), || None);
        let new_chain = |chain: Vec<usize>| MessageChain { left: chain.into(), known: KnownState::default() };
        let mut chains: Vec<_> = chains(messages).into_iter().map(new_chain).collect();
        let mut separate = Vec::new();
        let mut all_confirmed = true;
        while all_confirmed {
            let mut ids = HashSet::new();
            let (wave, others): (Vec<_>, _) = chains.into_iter().partition(|chain| {
                let first = chain.left.front().and_then(|at| shared[*at].as_ref());
                first.is_some_and(|message| self.0.may_share(message) && ids.insert(message.id))
            });
            separate.extend(others);
            // A batch of one message has no advantage.
            if wave.len() < 2 {
                separate.extend(wave);
                break;
            }
            let failed;
            (chains, failed) = self.publish_wave(wave, &shared, &mut results, end).await;
            all_confirmed = failed.is_empty();
            separate.extend(failed);
            if !all_confirmed {
                separate.append(&mut chains);
            }
        }
        join_all(separate.into_iter().map(|chain| self.publish_chain(chain, messages, end)))
            .await
            .into_iter()
            .flatten()
            .for_each(|(at, result)| results[at] = Some(result));
        // A message without a result follows a failed message of its chain.
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(PublishError::kept_back()))).collect()
    }

    /// Publishes the first message of each chain in batches. Returns the chains that have further messages, and the
    /// chains whose first message is sent again.
    async fn publish_wave(
        &self,
        wave: Vec<MessageChain>,
        shared: &[Option<EncodedMessage<'_>>],
        results: &mut [Option<PublishResult>],
        end: Instant,
    ) -> (Vec<MessageChain>, Vec<MessageChain>) {
        let first = |chain: &MessageChain| chain.left.front().and_then(|at| shared[*at].as_ref());
        let batches = split_batches(wave.iter().filter_map(first));
        let sent = join_all(batches.iter().map(|batch| self.0.attempt_batch(batch, end))).await;
        let (mut going, mut again) = (Vec::new(), Vec::new());
        let outcomes = sent.into_iter().zip(&batches).flat_map(|(sent, batch)| match sent {
            Ok(each) => each.into_iter().map(Ok).collect::<Vec<_>>(),
            Err((sent, error)) => batch.iter().map(|_| Err((sent, error.clone()))).collect(),
        });
        for (mut chain, outcome) in wave.into_iter().zip(outcomes) {
            let Some(at) = chain.left.front().copied() else { continue };
            match outcome {
                Ok(Ok(())) => {
                    results[at] = Some(Ok(Published::somewhere()));
                    chain.left.pop_front();
                    if !chain.left.is_empty() {
                        going.push(chain);
                    }
                }
                Ok(Err(failure)) => {
                    // A chain of a wave has no earlier attempt.
                    match chain.known.add(AttemptOutcome::Failed(failure)) {
                        Some(result) => results[at] = Some(result.map(|()| Published::somewhere())),
                        None => again.push(chain),
                    }
                }
                Err((sent, error)) => again.push(MessageChain { known: KnownState::after_batch(sent, error), ..chain }),
            }
        }
        (going, again)
    }

    /// Publishes the messages of a chain in order, until one fails.
    async fn publish_chain(
        &self,
        chain: MessageChain,
        messages: &[OutboundMessage],
        end: Instant,
    ) -> Vec<(usize, PublishResult)> {
        let MessageChain { left, mut known } = chain;
        let mut results = Vec::with_capacity(left.len());
        for at in left {
            let (message, known) = (&messages[at], std::mem::take(&mut known));
            let result = match self.0.permit(end).await {
                Some(_permit) => self.publish_outbound(known, message, end).await,
                None => Err(known.into_error()),
            };
            let failed = result.is_err();
            results.push((at, result));
            if failed {
                break;
            }
        }
        results
    }
}

/// Splits messages, in order, into batches within the limits.
fn split_batches<'a>(all: impl Iterator<Item = &'a EncodedMessage<'a>>) -> Vec<Vec<&'a EncodedMessage<'a>>> {
    let mut batches: Vec<Vec<&EncodedMessage<'_>>> = Vec::new();
    let mut bytes = 0;
    for message in all {
        bytes += message.body.len();
        match batches.last_mut().filter(|batch| batch.len() < MAX_BATCH && bytes <= MAX_BATCH_BYTES) {
            Some(batch) => batch.push(message),
            None => {
                bytes = message.body.len();
                batches.push(vec![message]);
            }
        }
    }
    batches
}

/// Encodes a message that can be sent in a batch. Returns `None` for a message that is sent separately: a delayed or
/// invalid one.
fn shareable(message: &OutboundMessage) -> Option<EncodedMessage<'_>> {
    EncodedMessage::new(message, &RabbitProperties::default()).ok().filter(|_| message.deliver_at.is_none())
}

fn batch_message<'a>(EncodedMessage { to, properties, body, .. }: &'a EncodedMessage<'_>) -> BatchMessage<'a> {
    BatchMessage { exchange: &to.exchange, key: &to.key, properties: properties.clone(), body }
}

/// Finds out why the broker has returned messages, with one request for each queue. After `end`, the reason is left open.
async fn explain_returns(
    connection: &PublishConnection,
    batch: &[&EncodedMessage<'_>],
    results: &mut [Result<(), PublishFailure>],
    end: Instant,
) {
    let mut by_queue: HashMap<&str, PublishFailure> = HashMap::new();
    for (result, message) in results.iter_mut().zip(batch) {
        let Err(failure @ PublishFailure::Unroutable) = result else { continue };
        if !message.to.exchange.is_empty() {
            continue;
        }
        let queue = message.to.key.as_str();
        if !by_queue.contains_key(queue) {
            let explained = timeout_at(end, connection.explain_return(queue)).await;
            by_queue.insert(queue, explained.unwrap_or(PublishFailure::QueueDown(None)));
        }
        if let Some(explained) = by_queue.get(queue) {
            *failure = explained.clone();
        }
    }
}

impl PublisherState {
    /// Returns whether a message may be in a batch. A message that the broker refuses closes the channel, and leaves
    /// the state of all messages on the channel unknown.
    fn may_share(&self, message: &EncodedMessage<'_>) -> bool {
        message.body.len() <= MAX_SHARED_BYTES
            && fits_any_frame(&message.properties)
            && self.is_proven(&message.to.exchange)
    }

    /// Tries to publish a batch over one channel.
    ///
    /// # Errors
    /// Not all messages were confirmed.
    async fn attempt_batch(&self, batch: &[&EncodedMessage<'_>], end: Instant) -> BatchResult {
        let Some(_permit) = self.permit(end).await else { return Err((false, None)) };
        let left = || end.saturating_duration_since(Instant::now());
        let connection = match timeout(left(), self.connection.get()).await {
            Ok(connected) => connected.map_err(|error| (false, Some(error)))?,
            Err(_) => return Err((false, None)),
        };
        let messages: Vec<_> = batch.iter().map(|message| batch_message(message)).collect();
        let sent = AtomicBool::new(false);
        let error = match self.confirmed(connection.publish_batch(&messages, &sent), end).await {
            Some(Ok(mut each)) => {
                explain_returns(&connection, batch, &mut each, end).await;
                return Ok(each);
            }
            Some(Err(error)) => Some(error),
            None => {
                self.connection.discard(&connection).await;
                None
            }
        };
        // One of the exchanges may be missing. Sending each message separately shows which one.
        batch.iter().for_each(|message| self.unprove(&message.to.exchange));
        let cause = error.as_ref().map(tracing::field::display);
        warn!(target: "idempotent", broker = %self.connection.url, messages = batch.len(), cause,
            "batch not confirmed; sending each message separately");
        Err((sent.load(SeqCst), error))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn message(to: &str, bytes: usize) -> OutboundMessage {
        OutboundMessage::new(to, "id", vec![b'x'; bytes])
    }

    #[test]
    fn a_batch_has_a_limit_of_messages_and_a_limit_of_bytes() {
        for (bytes, expected) in [(1, vec![MAX_BATCH, 1]), (MAX_BATCH_BYTES / 2, vec![2; MAX_BATCH / 2])] {
            let outbound = message("q", bytes);
            let encoded = shareable(&outbound).unwrap();
            let messages = std::iter::repeat_n(&encoded, expected.iter().sum());
            assert_eq!(split_batches(messages).iter().map(Vec::len).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_small_message_to_an_exchange_that_has_accepted_one_may_be_in_a_batch() {
        let publisher = RabbitPublisher::builder("amqp://broker").build().unwrap();
        publisher.0.prove("a");
        publisher.0.prove("b");
        for (to, bytes, expected) in [
            ("a/key", 1, true),
            ("b/key", MAX_SHARED_BYTES, true),
            ("b/key", MAX_SHARED_BYTES + 1, false),
            ("c/key", 1, false),
        ] {
            let outbound = message(to, bytes);
            assert_eq!(publisher.0.may_share(&shareable(&outbound).unwrap()), expected, "{to}, {bytes} bytes");
        }
    }
}

//! Publishing of many messages on few channels. A message that fails is published on its own.
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use futures_util::future::join_all;
use idempotent_mq::{OutboundMessage, PublishError as MqPublishError, Published, chains};
use lapin::BasicProperties;
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use super::attempt::PublishState;
use super::outbox::{outgoing, route, told};
use super::{PublishError, PublishErrorKind, PublisherInner, RabbitPublisher};
use crate::Route;
use crate::confirmed_publisher::{BatchMessage, PublishFailure};
use crate::message::LONGEST;

/// The maximum number of messages on one channel. A missing confirm causes the publisher to send all of them again.
const MAX_MESSAGES: usize = 128;
/// The maximum number of bytes on one channel, so that a slow line also confirms them in time.
const MAX_BYTES: usize = 1 << 20;
/// The maximum size of a message that shares a channel: the broker may refuse a larger one and close the channel.
const MAX_SHARED_BYTES: usize = 256 << 10;

/// The indexes of messages that must be sent in order, and the known state of the first.
struct MessageChain {
    left: VecDeque<usize>,
    known: PublishState,
}

/// A message as it is sent on a channel.
struct PreparedMessage<'a> {
    to: Route,
    id: &'a str,
    properties: BasicProperties,
    body: &'a [u8],
}

type BatchAnswer = Result<Published, MqPublishError>;

impl RabbitPublisher {
    /// Publishes the first message of each chain in waves as long as all succeed, and then each chain on its own.
    ///
    /// One time limit applies to all messages, including the wait for channels: the relay gives up the whole call, and
    /// must know before which messages were not sent. Otherwise, an outage would use up resends.
    pub(super) async fn publish_together(&self, messages: &[OutboundMessage]) -> Vec<BatchAnswer> {
        let end = Instant::now() + self.0.give_up_after;
        let ready: Vec<_> = messages.iter().map(PreparedMessage::of).collect();
        let mut answers: Vec<Option<BatchAnswer>> = Vec::new();
        answers.resize_with(messages.len(), || None);
        let begin = |chain: Vec<usize>| MessageChain { left: chain.into(), known: PublishState::default() };
        let mut going: Vec<_> = chains(messages).into_iter().map(begin).collect();
        let mut slow = Vec::new();
        let mut gets_through = true;
        while gets_through {
            let mut ids = HashSet::new();
            let (wave, others): (Vec<_>, _) = going.into_iter().partition(|chain| {
                let first = chain.left.front().and_then(|at| ready[*at].as_ref());
                first.is_some_and(|ready| self.0.may_share(ready) && ids.insert(ready.id))
            });
            slow.extend(others);
            // A single message gains nothing from a wave.
            if wave.len() < 2 {
                slow.extend(wave);
                break;
            }
            let ended;
            (going, ended) = self.wave(wave, &ready, &mut answers, end).await;
            gets_through = ended.is_empty();
            slow.extend(ended);
            if !gets_through {
                slow.append(&mut going);
            }
        }
        join_all(slow.into_iter().map(|chain| self.one_by_one(chain, messages, end)))
            .await
            .into_iter()
            .flatten()
            .for_each(|(at, answer)| answers[at] = Some(answer));
        // A message without an answer follows one that was not accepted.
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(MqPublishError::kept_back()))).collect()
    }

    /// Publishes the first message of each chain. Returns the chains that continue, and the chains whose first message
    /// needs another try.
    async fn wave(
        &self,
        wave: Vec<MessageChain>,
        ready: &[Option<PreparedMessage<'_>>],
        answers: &mut [Option<BatchAnswer>],
        end: Instant,
    ) -> (Vec<MessageChain>, Vec<MessageChain>) {
        let first = |chain: &MessageChain| chain.left.front().and_then(|at| ready[*at].as_ref());
        let groups = groups(wave.iter().filter_map(first));
        let ends = join_all(groups.iter().map(|group| self.0.together(group, end))).await;
        let (mut going, mut again) = (Vec::new(), Vec::new());
        let ends = ends.into_iter().zip(&groups).flat_map(|(end, group)| match end {
            Ok(each) => each.into_iter().map(Ok).collect::<Vec<_>>(),
            Err((sent, error)) => group.iter().map(|_| Err((sent, error.clone()))).collect(),
        });
        for (mut chain, end) in wave.into_iter().zip(ends) {
            let Some(at) = chain.left.front().copied() else { continue };
            match end {
                Ok(Ok(())) => {
                    answers[at] = Some(Ok(Published::somewhere()));
                    chain.left.pop_front();
                    if !chain.left.is_empty() {
                        going.push(chain);
                    }
                }
                Ok(Err(PublishFailure::Unroutable)) => {
                    let error =
                        PublishError::new(PublishErrorKind::Unroutable, "no queue is bound for the message", None);
                    answers[at] = Some(Err(told(error)));
                }
                Ok(Err(_)) => again.push(MessageChain { known: PublishState::nacked(), ..chain }),
                Err((sent, error)) => again.push(MessageChain { known: PublishState::shared(sent, error), ..chain }),
            }
        }
        (going, again)
    }

    /// Publishes the messages of a chain until one is not accepted.
    async fn one_by_one(
        &self,
        chain: MessageChain,
        messages: &[OutboundMessage],
        end: Instant,
    ) -> Vec<(usize, BatchAnswer)> {
        let MessageChain { left, mut known } = chain;
        let mut answers = Vec::with_capacity(left.len());
        for at in left {
            let message = &messages[at];
            let known = std::mem::take(&mut known);
            let sent = match (outgoing(message), self.0.place(end).await) {
                (Ok(outgoing), Some(_place)) => self.publish_outbound(known, message, &outgoing, end).await,
                (Ok(_), None) => Err(known.given_up()),
                (Err(error), _) => Err(error),
            };
            let failed = sent.is_err();
            answers.push((at, sent.map(|()| Published::somewhere()).map_err(told)));
            if failed {
                break;
            }
        }
        answers
    }
}

/// Groups messages in order, within the limits of one channel.
fn groups<'a>(all: impl Iterator<Item = &'a PreparedMessage<'a>>) -> Vec<Vec<&'a PreparedMessage<'a>>> {
    let mut groups: Vec<Vec<&PreparedMessage<'_>>> = Vec::new();
    let mut bytes = 0;
    for ready in all {
        bytes += ready.body.len();
        match groups.last_mut().filter(|group| group.len() < MAX_MESSAGES && bytes <= MAX_BYTES) {
            Some(group) => group.push(ready),
            None => {
                bytes = ready.body.len();
                groups.push(vec![ready]);
            }
        }
    }
    groups
}

impl<'a> PreparedMessage<'a> {
    /// Returns `None` for a message that is sent on its own: it is delayed, or cannot be sent.
    fn of(message: &'a OutboundMessage) -> Option<Self> {
        if message.deliver_at.is_some() {
            return None;
        }
        let to = route(&message.topic);
        let fits = to.exchange.len() <= LONGEST && to.key.len() <= LONGEST;
        let properties = outgoing(message).ok()?.properties().filter(|_| fits)?;
        Some(Self { to, id: &message.id, properties, body: &message.body })
    }

    fn parcel(&self) -> BatchMessage<'_> {
        let Self { to, properties, body, .. } = self;
        BatchMessage { exchange: &to.exchange, key: &to.key, properties: properties.clone(), body }
    }
}

impl PublisherInner {
    /// Returns whether the message may share a channel. A message that the broker refuses closes its channel and
    /// leaves the state of all others unknown.
    fn may_share(&self, ready: &PreparedMessage<'_>) -> bool {
        ready.body.len() <= MAX_SHARED_BYTES && self.proven().contains(&ready.to.exchange)
    }

    /// Returns a place, or `None` if none became free in time.
    async fn place(&self, end: Instant) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        timeout_at(end, self.places.acquire()).await.ok()?.ok()
    }

    /// Tries to publish several messages on one channel.
    ///
    /// # Errors
    /// Not all messages were answered. The error says whether any message was sent, and why.
    async fn together(
        &self,
        group: &[&PreparedMessage<'_>],
        end: Instant,
    ) -> Result<Vec<Result<(), PublishFailure>>, (bool, Option<lapin::Error>)> {
        let Some(_place) = self.place(end).await else { return Err((false, None)) };
        let left = || end.saturating_duration_since(Instant::now());
        let connection = match timeout(left(), self.connection.get()).await {
            Ok(connected) => connected.map_err(|error| (false, Some(error)))?,
            Err(_) => return Err((false, None)),
        };
        let parcels: Vec<_> = group.iter().map(|ready| ready.parcel()).collect();
        let sent = AtomicBool::new(false);
        let published = timeout(self.confirm_within.min(left()), connection.publish_all(&parcels, &sent)).await;
        let error = match published {
            Ok(Ok(each)) => return Ok(each),
            Ok(Err(error)) => Some(error),
            Err(_) => {
                self.connection.discard(&connection).await;
                None
            }
        };
        // One of the exchanges may be missing. The messages that follow on their own show which one.
        let mut proven = self.proven();
        for ready in group {
            proven.remove(&ready.to.exchange);
        }
        let cause = error.as_ref().map(tracing::field::display);
        warn!(target: "idempotent", broker = %self.connection.address, messages = group.len(), cause,
            "not all messages were confirmed: the publisher sends each of them again");
        Err((sent.load(SeqCst), error))
    }
}

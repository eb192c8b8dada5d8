//! Many messages at once: by few channels, and only what gets into difficulties one by one.
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use futures_util::future::join_all;
use idempotent_mq::{OutboundMessage, PublishError as Untold, Published, chains};
use lapin::BasicProperties;
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use super::attempt::Knowledge;
use super::outbox::{outgoing, route, told};
use super::{Inner, PublishError, PublishErrorKind, RabbitPublisher};
use crate::Route;
use crate::confirm::{Parcel, Unsent};
use crate::outgoing::LONGEST;

/// Messages of one channel at a time: a confirm that stays out has as many sent again.
const MOST: usize = 128;
/// Bytes of one channel at a time, likewise: so many are confirmed in time by a slow line, too.
const HEAVIEST: usize = 1 << 20;
/// Bytes of one that may share a channel: more may be too much for the broker, which then closes it.
const LARGEST: usize = 256 << 10;

/// What is left of messages that go one behind the other, as places among all; and what is known of the first.
struct Chain {
    left: VecDeque<usize>,
    known: Knowledge,
}

/// A message as it goes over a channel.
struct Ready<'a> {
    to: Route,
    id: &'a str,
    properties: BasicProperties,
    body: &'a [u8],
}

type Told = Result<Published, Untold>;

impl RabbitPublisher {
    /// Waves of the first of each chain, as long as they get through; then each chain by itself.
    ///
    /// One time for all of it, the waiting for places included: who publishes for an outbox gives up as a whole, and must
    /// be told before what is not sent, or an outage would use resends up.
    pub(super) async fn publish_together(&self, messages: &[OutboundMessage]) -> Vec<Told> {
        let end = Instant::now() + self.0.give_up_after;
        let ready: Vec<_> = messages.iter().map(Ready::of).collect();
        let mut answers: Vec<Option<Told>> = Vec::new();
        answers.resize_with(messages.len(), || None);
        let begin = |chain: Vec<usize>| Chain { left: chain.into(), known: Knowledge::default() };
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
            // One alone gains nothing by it.
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
        // What has no answer stood behind one that was not accepted.
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(Untold::kept_back()))).collect()
    }

    /// The first of each: those that go on, and those whose first is to be tried again.
    async fn wave(
        &self,
        wave: Vec<Chain>,
        ready: &[Option<Ready<'_>>],
        answers: &mut [Option<Told>],
        end: Instant,
    ) -> (Vec<Chain>, Vec<Chain>) {
        let first = |chain: &Chain| chain.left.front().and_then(|at| ready[*at].as_ref());
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
                Ok(Err(Unsent::Unroutable)) => {
                    let error = PublishError::new(PublishErrorKind::Unroutable, "no queue takes it", None);
                    answers[at] = Some(Err(told(error)));
                }
                Ok(Err(_)) => again.push(Chain { known: Knowledge::nacked(), ..chain }),
                Err((sent, error)) => again.push(Chain { known: Knowledge::shared(sent, error), ..chain }),
            }
        }
        (going, again)
    }

    /// Until one is not accepted.
    async fn one_by_one(&self, chain: Chain, messages: &[OutboundMessage], end: Instant) -> Vec<(usize, Told)> {
        let Chain { left, mut known } = chain;
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

/// In their order, and of no more than may go by one channel at a time.
fn groups<'a>(all: impl Iterator<Item = &'a Ready<'a>>) -> Vec<Vec<&'a Ready<'a>>> {
    let mut groups: Vec<Vec<&Ready<'_>>> = Vec::new();
    let mut bytes = 0;
    for ready in all {
        bytes += ready.body.len();
        match groups.last_mut().filter(|group| group.len() < MOST && bytes <= HEAVIEST) {
            Some(group) => group.push(ready),
            None => {
                bytes = ready.body.len();
                groups.push(vec![ready]);
            }
        }
    }
    groups
}

impl<'a> Ready<'a> {
    /// Returns `None` for a message that goes by itself: it is delayed, or cannot be sent.
    fn of(message: &'a OutboundMessage) -> Option<Self> {
        if message.deliver_at.is_some() {
            return None;
        }
        let to = route(&message.topic);
        let fits = to.exchange.len() <= LONGEST && to.key.len() <= LONGEST;
        let properties = outgoing(message).ok()?.properties().filter(|_| fits)?;
        Some(Self { to, id: &message.id, properties, body: &message.body })
    }

    fn parcel(&self) -> Parcel<'_> {
        let Self { to, properties, body, .. } = self;
        Parcel { exchange: &to.exchange, key: &to.key, properties: properties.clone(), body }
    }
}

impl Inner {
    /// One that the broker refuses closes its channel, and leaves all in doubt that share it.
    fn may_share(&self, ready: &Ready<'_>) -> bool {
        ready.body.len() <= LARGEST && self.proven().contains(&ready.to.exchange)
    }

    /// Nothing, where none was free in time.
    async fn place(&self, end: Instant) -> Option<SemaphorePermit<'_>> {
        // Never closed.
        timeout_at(end, self.places.acquire()).await.ok()?.ok()
    }

    /// One try of several by one channel.
    ///
    /// # Errors
    /// Not all were answered: whether any was sent, and why.
    async fn together(
        &self,
        group: &[&Ready<'_>],
        end: Instant,
    ) -> Result<Vec<Result<(), Unsent>>, (bool, Option<lapin::Error>)> {
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
        // It may be that one of them is gone: which one is found out message by message.
        let mut proven = self.proven();
        for ready in group {
            proven.remove(&ready.to.exchange);
        }
        let cause = error.as_ref().map(tracing::field::display);
        warn!(target: "idempotent", broker = %self.connection.address, messages = group.len(), cause,
            "not all were confirmed: they are sent again, one by one");
        Err((sent.load(SeqCst), error))
    }
}

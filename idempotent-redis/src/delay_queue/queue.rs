//! The queue: sending, settling, cancelling and counting.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use idempotent_mq::{Cancelled, DelayError};
use redis::Value;

use super::builder::{DelayQueueBuilder, Server};
use super::counts::DelayCounts;
use super::layout::TopicLayout;
use super::message::check_length;
use super::received::{DelayDelivery, parse_server_id};
use super::replies::{cancelled, count, delay_error, items, unexpected_reply};
use super::scripts::DelayScript;
use super::servers::{QueueServers, ScriptArgs};

/// A topic of a delay queue in Redis 6.2 or later, or in Valkey.
///
/// The queue uses one server, the primary that sentinels report, or a cluster. A clone is cheap and shares the
/// connections of the original.
///
/// Each message is delivered at least once and never before its time. A delivery belongs to its receiver for the
/// [visibility timeout](DelayQueueBuilder::visibility). After that, the receiver can neither commit nor roll back the
/// message, which may be in delivery elsewhere. After 16 retries (that is, seventeen deliveries), a message becomes a
/// dead letter.
///
/// The URL has the same form as for [`RedisStore`](crate::RedisStore). An ACL user needs `~<namespace>:delay:*
/// &idempotent:* +eval +evalsha +time +publish +subscribe +info +exists +hget +hset +hdel +hlen +hmget +unlink +zadd
/// +zcard +zcount +zmscore +zrange +zrangebyscore +zrem +zremrangebyrank +zscore` and the commands for connecting.
///
/// ```no_run
/// # async fn doc() -> Result<(), idempotent_mq::DelayError> {
/// use std::time::Duration;
///
/// use idempotent_redis::{RetryDelay, DelayMessage, DelayQueue};
///
/// let queue = DelayQueue::connect("redis://localhost", "orders").await?;
/// queue.send(&DelayMessage::after(Duration::from_secs(1800), b"17".to_vec()).id("unpaid-17")).await?;
///
/// let mut receiver = queue.receiver();
/// for taken in receiver.receive(10).await? {
///     // Failure: the message is redelivered in 5 s.
///     if taken.body.is_empty() {
///         queue.rollback(&taken, RetryDelay::After(Duration::from_secs(5)), "empty message").await?;
///         continue;
///     }
///     queue.commit(&taken).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DelayQueue(pub(crate) Arc<QueueInner>);

pub(crate) struct QueueInner {
    pub(crate) servers: Arc<QueueServers>,
    pub(crate) topic: TopicLayout,
    pub(crate) settings: QueueSettings,
    /// Next slot for a message without a slot basis.
    pub(crate) turn: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSettings {
    pub(crate) slots: u16,
    pub(crate) visibility: Duration,
    pub(crate) max_retries: u32,
}

/// The result of settling a delivery.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SettleResult {
    /// The delivery was settled.
    Done,
    /// Nothing was done, because the delivery is no longer held: the message was redelivered, cancelled or already
    /// settled.
    Lost,
}

/// The time at which a failed delivery is retried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RetryDelay {
    /// After this delay. A message with a priority then ranks after all new ones.
    After(Duration),
    /// At once, ranked by the remaining retries, as in RocketMQ-style delay queues on Redis: after all new messages
    /// with a priority, and before all messages with a due time.
    Immediate,
}

/// The result of a rollback.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RollbackResult {
    /// The message will be redelivered.
    Again,
    /// The message has no retries left and is a dead letter.
    Dead,
    /// The same as [`SettleResult::Lost`].
    Lost,
}

impl DelayQueue {
    /// Connects with the default settings of [`builder`](Self::builder).
    ///
    /// # Errors
    /// The same as [`DelayQueueBuilder::connect`].
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the servers.
    pub async fn connect(server: impl Into<Server>, topic: impl Into<String>) -> Result<Self, DelayError> {
        Self::builder(server, topic).connect().await
    }

    /// Returns a builder for further configuration.
    pub fn builder(server: impl Into<Server>, topic: impl Into<String>) -> DelayQueueBuilder {
        DelayQueueBuilder::new(server.into(), topic.into())
    }

    pub(crate) fn new(servers: Arc<QueueServers>, topic: &str, settings: QueueSettings) -> Result<Self, DelayError> {
        let topic = TopicLayout::new(&servers.namespace, topic, settings.slots)?;
        Ok(Self(Arc::new(QueueInner { servers, topic, settings, turn: AtomicUsize::new(0) })))
    }

    /// Creates a handle to another topic, with the same settings and connections.
    ///
    /// # Errors
    /// `Refused` if the name is invalid.
    pub fn for_topic(&self, topic: &str) -> Result<Self, DelayError> {
        Self::new(self.0.servers.clone(), topic, self.0.settings)
    }

    /// Returns the name of the topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.0.topic.name
    }

    /// Commits a delivery: the message is not delivered again.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind). After `Ambiguous` the message may be committed; a repeated commit then returns
    /// `Lost`.
    ///
    /// # Cancellation
    /// The message may or may not be committed.
    pub async fn commit(&self, taken: &DelayDelivery) -> Result<SettleResult, DelayError> {
        Ok(self.commit_all(std::slice::from_ref(taken)).await?.pop().unwrap_or(SettleResult::Lost))
    }

    /// Commits deliveries with one script call per slot. The results have the order of `taken`.
    ///
    /// # Errors
    /// The same as [`commit`](Self::commit), for all deliveries: some may be committed.
    ///
    /// # Cancellation
    /// Some deliveries may be committed.
    pub async fn commit_all(&self, taken: &[DelayDelivery]) -> Result<Vec<SettleResult>, DelayError> {
        let receipts: Vec<_> = taken.iter().map(|taken| &taken.receipt).collect();
        self.settle_each(DelayScript::Done, &receipts, None).await.map_err(|error| delay_error("committing", error))
    }

    /// Extends a delivery by restarting its visibility timeout.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// The delivery may or may not be extended.
    pub async fn extend(&self, taken: &DelayDelivery) -> Result<SettleResult, DelayError> {
        self.extend_by(taken, self.0.settings.visibility).await
    }

    /// Extends a delivery to end after `time` from now, instead of after the visibility timeout.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind). `Refused` if the time is less than 1 ms or more than 7 days.
    ///
    /// # Cancellation
    /// The delivery may or may not be extended.
    pub async fn extend_by(&self, taken: &DelayDelivery, time: Duration) -> Result<SettleResult, DelayError> {
        super::builder::check_visibility(time)?;
        let kept = self.settle_each(DelayScript::Keep, &[&taken.receipt], Some(time)).await;
        Ok(kept.map_err(|error| delay_error("extending", error))?.pop().unwrap_or(SettleResult::Lost))
    }

    /// Rolls a delivery back after its handler failed. The message is redelivered until it has no retries left.
    /// `reason` is stored and must not contain secrets.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind). After `Ambiguous` the delivery may be rolled back; a repeated rollback then
    /// returns `Lost`.
    ///
    /// # Cancellation
    /// The delivery may or may not be rolled back.
    pub async fn rollback(
        &self,
        taken: &DelayDelivery,
        back: RetryDelay,
        reason: &str,
    ) -> Result<RollbackResult, DelayError> {
        let (how, delay) = match back {
            RetryDelay::After(delay) => ("r", delay),
            RetryDelay::Immediate => ("i", Duration::ZERO),
        };
        let reply = self.put_back(&taken.receipt, how, delay, (1, 0), reason).await;
        match reply.map_err(|error| delay_error("rolling back", error))? {
            Value::Int(1) => Ok(RollbackResult::Again),
            Value::Int(2) => Ok(RollbackResult::Dead),
            Value::Int(0) => Ok(RollbackResult::Lost),
            _ => Err(delay_error("rolling back", unexpected_reply("rolling back"))),
        }
    }

    /// Cancels a message by its id. Use [`cancel_in`](Self::cancel_in) for a message with a [slot
    /// basis](crate::DelayMessage::slot_basis).
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// The message may or may not be cancelled. Cancelling again is safe.
    pub async fn cancel(&self, id: &str) -> Result<Cancelled, DelayError> {
        let named = self.cancel_in(id, id).await?;
        let Some((slot, member)) = parse_server_id(id).filter(|_| named == Cancelled::Unknown) else {
            return Ok(named);
        };
        if usize::from(slot) >= self.0.topic.slots.len() {
            return Ok(Cancelled::Unknown);
        }
        cancelled(&self.call(DelayScript::Cancel, slot, &ScriptArgs::new().text(member).text(""), "cancelling").await?)
    }

    /// Cancels a message with this slot basis by its id.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// The message may or may not be cancelled. Cancelling again is safe.
    pub async fn cancel_in(&self, basis: &str, id: &str) -> Result<Cancelled, DelayError> {
        check_length("the id", id)?;
        let args = ScriptArgs::new().text("").text(format!("k{id}"));
        let slot = self.0.topic.slot_of(basis);
        cancelled(&self.call(DelayScript::Cancel, slot, &args, "cancelling").await?)
    }

    /// Counts the messages of all slots.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub async fn counts(&self) -> Result<DelayCounts, DelayError> {
        let mut all = DelayCounts::default();
        self.counts_by_slot().await?.into_iter().for_each(|(counts, _)| all.add(counts));
        Ok(all)
    }

    /// Counts the messages of each slot, and returns the server's time of each count in µs.
    pub(crate) async fn counts_by_slot(&self) -> Result<Vec<(DelayCounts, u64)>, DelayError> {
        let mut all = Vec::new();
        for slot in self.slots() {
            let reply = self.call(DelayScript::Count, slot, &ScriptArgs::new(), "counting").await?;
            let mut items = items(reply, "counting")?;
            let counts = DelayCounts::read(&mut items).zip(items.number());
            all.push(counts.ok_or_else(|| delay_error("counting", unexpected_reply("counting")))?);
        }
        Ok(all)
    }

    /// Removes all messages of the topic, including dead letters and messages in delivery. Returns their number.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind). Some slots may be empty.
    ///
    /// # Cancellation
    /// Some slots may be empty.
    pub async fn purge(&self) -> Result<u64, DelayError> {
        let mut purged = 0;
        for slot in self.slots() {
            purged += count(
                &self.call(DelayScript::Purge, slot, &ScriptArgs::new().text("all"), "purging").await?,
                "purging",
            )?;
        }
        Ok(purged)
    }
}

/// Shows nothing of the URL.
impl fmt::Debug for DelayQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueue")
            .field("topic", &self.0.topic.name)
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}

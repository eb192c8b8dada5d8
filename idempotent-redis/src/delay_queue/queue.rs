//! The queue: sending, settling, calling off, counting.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use idempotent_mq::{Cancelled, DelayError};
use redis::Value;

use super::builder::DelayQueueBuilder;
use super::counts::DelayCounts;
use super::layout::TopicLayout;
use super::message::check_length;
use super::received::{Taken, parse_server_id};
use super::replies::{cancelled, count, items};
use super::scripts::DelayScript;
use super::servers::{QueueServers, ScriptArgs, delay_error, unexpected_reply};

/// A topic of a delay queue in Redis 6.2 or newer, or Valkey: one server, the primary that sentinels name, or a cluster.
/// Cheap to clone: clones share the connections.
///
/// Each message is delivered at least once, and never before its time. What was taken is the taker's for the
/// [visibility timeout](DelayQueueBuilder::visibility); whoever has lost it can neither commit nor roll back what is
/// somebody else's by then. After 16 retries, which are 17 deliveries, a message is put aside as a dead letter.
///
/// The URL is that of [`RedisStore`](crate::RedisStore). An ACL user needs `~<namespace>:delay:* &idempotent:* +eval
/// +evalsha +time +publish +subscribe +info +exists +hget +hset +hdel +hlen +hmget +unlink +zadd +zcard +zcount +zmscore
/// +zrange +zrangebyscore +zrem +zremrangebyrank +zscore` and those of a connection.
///
/// ```no_run
/// # async fn doc() -> Result<(), idempotent_mq::DelayError> {
/// use std::time::Duration;
///
/// use idempotent_redis::{Back, DelayMessage, DelayQueue};
///
/// let queue = DelayQueue::connect("redis://localhost", "orders").await?;
/// queue.send(&DelayMessage::after(Duration::from_secs(1800), b"17".to_vec()).id("unpaid-17")).await?;
///
/// let mut taker = queue.taker();
/// for taken in taker.take(10).await? {
///     // The failing case: it comes again in 5 s.
///     if taken.body.is_empty() {
///         queue.rollback(&taken, Back::After(Duration::from_secs(5)), "no order in it").await?;
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
    /// Of messages without a basis.
    pub(crate) turn: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSettings {
    pub(crate) slots: u16,
    pub(crate) visibility: Duration,
    pub(crate) max_retries: u32,
}

/// What a settled delivery came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Closing {
    /// Done.
    Done,
    /// It was not this delivery's any more, and nothing was done: it has come again, was called off, or was settled
    /// already.
    Lost,
}

/// How a delivery that failed is to come again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Back {
    /// Not before this time has passed; one of a priority ranks behind all new ones then.
    After(Duration),
    /// At once, ranking by the retries that are left to it, as RocketMQ-style delay queues on Redis do: behind all new
    /// ones of a priority, before all that are due at a time.
    Immediate,
}

/// What a rollback came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RolledBack {
    /// It comes again.
    Again,
    /// Its retries are used up: it is a dead letter.
    Dead,
    /// As [`Closing::Lost`].
    Lost,
}

impl DelayQueue {
    /// Connects, with the defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    /// As [`DelayQueueBuilder::connect`].
    ///
    /// # Cancellation
    /// Nothing is left behind.
    pub async fn connect(url: impl Into<String>, topic: impl Into<String>) -> Result<Self, DelayError> {
        Self::builder(url, topic).connect().await
    }

    /// To set anything but the place.
    pub fn builder(url: impl Into<String>, topic: impl Into<String>) -> DelayQueueBuilder {
        DelayQueueBuilder::new(url.into(), topic.into())
    }

    pub(crate) fn new(servers: Arc<QueueServers>, topic: &str, settings: QueueSettings) -> Result<Self, DelayError> {
        let topic = TopicLayout::new(&servers.namespace, topic, settings.slots)?;
        Ok(Self(Arc::new(QueueInner { servers, topic, settings, turn: AtomicUsize::new(0) })))
    }

    /// Another topic with the same settings, by the same connections.
    ///
    /// # Errors
    /// `Refused` for a name that cannot be one.
    pub fn beside(&self, topic: &str) -> Result<Self, DelayError> {
        Self::new(self.0.servers.clone(), topic, self.0.settings)
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.0.topic.name
    }

    /// The message is done: it is not delivered again.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind). After `Ambiguous` it may be done; asked again it is `Lost` then.
    ///
    /// # Cancellation
    /// It may be done or not.
    pub async fn commit(&self, taken: &Taken) -> Result<Closing, DelayError> {
        Ok(self.commit_all(std::slice::from_ref(taken)).await?.pop().unwrap_or(Closing::Lost))
    }

    /// As [`commit`](Self::commit), of many in as few steps as they have slots; answers stand in the same order.
    ///
    /// # Errors
    /// As [`commit`](Self::commit), of all of them: some may be done.
    ///
    /// # Cancellation
    /// Some may be done.
    pub async fn commit_all(&self, taken: &[Taken]) -> Result<Vec<Closing>, DelayError> {
        let receipts: Vec<_> = taken.iter().map(|taken| &taken.receipt).collect();
        self.settle_each(DelayScript::Done, &receipts, None).await.map_err(|error| delay_error("committing", error))
    }

    /// Counts the time to settle it anew: the whole visibility timeout, from now.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// It may be done or not.
    pub async fn extend(&self, taken: &Taken) -> Result<Closing, DelayError> {
        self.extend_by(taken, self.0.settings.visibility).await
    }

    /// As [`extend`](Self::extend), for this time instead of the visibility timeout.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind); `Refused` for less than 1 ms.
    ///
    /// # Cancellation
    /// It may be done or not.
    pub async fn extend_by(&self, taken: &Taken, time: Duration) -> Result<Closing, DelayError> {
        super::builder::check_visibility(time)?;
        let kept = self.settle_each(DelayScript::Keep, &[&taken.receipt], Some(time)).await;
        Ok(kept.map_err(|error| delay_error("extending", error))?.pop().unwrap_or(Closing::Lost))
    }

    /// Its handler failed, for this `reason`, which must not name anything secret: it comes again, until its retries are
    /// used up.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind). After `Ambiguous` it may be done; asked again it is `Lost` then.
    ///
    /// # Cancellation
    /// It may be done or not.
    pub async fn rollback(&self, taken: &Taken, back: Back, reason: &str) -> Result<RolledBack, DelayError> {
        let (how, delay) = match back {
            Back::After(delay) => ("r", delay),
            Back::Immediate => ("i", Duration::ZERO),
        };
        let reply = self.put_back(&taken.receipt, how, delay, (1, 0), reason).await;
        match reply.map_err(|error| delay_error("rolling back", error))? {
            Value::Int(1) => Ok(RolledBack::Again),
            Value::Int(2) => Ok(RolledBack::Dead),
            Value::Int(0) => Ok(RolledBack::Lost),
            _ => Err(delay_error("rolling back", unexpected_reply("rolling back"))),
        }
    }

    /// Calls a message off, by its id. One with a [slot basis](crate::DelayMessage::slot_basis) of its own is called off by
    /// [`cancel_in`](Self::cancel_in).
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// It may be done or not. To ask again is safe.
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

    /// As [`cancel`](Self::cancel), of a message with this slot basis.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// It may be done or not. To ask again is safe.
    pub async fn cancel_in(&self, basis: &str, id: &str) -> Result<Cancelled, DelayError> {
        check_length("the id", id)?;
        let args = ScriptArgs::new().text("").text(format!("k{id}"));
        let slot = self.0.topic.slot_of(basis);
        cancelled(&self.call(DelayScript::Cancel, slot, &args, "cancelling").await?)
    }

    /// How many messages there are, in all slots.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// Nothing has happened.
    pub async fn counts(&self) -> Result<DelayCounts, DelayError> {
        let mut all = DelayCounts::default();
        for slot in self.slots() {
            let reply = self.call(DelayScript::Count, slot, &ScriptArgs::new(), "counting").await?;
            let counts = DelayCounts::read(&mut items(reply, "counting")?);
            all.add(counts.ok_or_else(|| delay_error("counting", unexpected_reply("counting")))?);
        }
        Ok(all)
    }

    /// Removes every message of the topic, dead letters included. Who has one loses it.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind). Some slots may be empty by then.
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

/// Nothing of the URL.
impl fmt::Debug for DelayQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueue")
            .field("topic", &self.0.topic.name)
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}

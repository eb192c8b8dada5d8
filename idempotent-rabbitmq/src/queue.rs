//! The queue that is consumed, and those beside it.
use lapin::options::QueueDeclareOptions;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Queue as Declared};

use crate::SettingError;
use crate::field::{FieldValue, Fields, table};

/// The queue to be consumed, and how it comes to be there.
///
/// ```
/// use idempotent_rabbitmq::Queue;
///
/// let ours = Queue::quorum("orders").argument("x-max-length", 100_000);
/// let theirs = Queue::existing("orders").beside(idempotent_rabbitmq::QueueKind::Quorum);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Queue {
    pub(crate) name: String,
    /// `None`: somebody else declares it.
    pub(crate) own: Option<Own>,
    /// Of the queues beside it.
    pub(crate) beside: QueueKind,
}

/// How a queue of ours is declared.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    kind: QueueKind,
    durable: bool,
    arguments: Fields,
}

/// How a queue keeps its messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum QueueKind {
    /// On one node.
    Classic,
    /// Replicated by Raft. Counts deliveries, and hands over what was delayed at least once.
    Quorum,
}

/// How often a quorum queue gives one message to consumers that die of it, before it puts it among the dead letters by
/// itself. Far above the limit of the consumer, whose dead letters say why; the broker's own default drops the message.
const DELIVERY_LIMIT: i64 = 1000;
/// How often a dead letter may be looked at before a quorum queue drops it. The broker's default, from 4.0 on, is 20.
const LOOKED_AT: i64 = 1_000_000;
/// Room for `.retry.` and the longest delay.
const LONGEST_NAME: usize = 255 - 20;

impl Queue {
    /// A classic queue, declared where it is not there.
    pub fn classic(name: impl Into<String>) -> Self {
        Self::own(name, QueueKind::Classic)
    }

    /// A quorum queue, declared where it is not there.
    pub fn quorum(name: impl Into<String>) -> Self {
        Self::own(name, QueueKind::Quorum)
    }

    /// A queue that somebody else declares. It is only checked that it is there.
    pub fn existing(name: impl Into<String>) -> Self {
        Self { name: name.into(), own: None, beside: QueueKind::Classic }
    }

    fn own(name: impl Into<String>, kind: QueueKind) -> Self {
        let own = Own { kind, durable: true, arguments: Fields::new() };
        Self { name: name.into(), own: Some(own), beside: kind }
    }

    /// A queue that is gone when its broker restarts. A quorum queue cannot be; nothing changes for an existing one.
    ///
    /// # Default
    /// Durable
    pub fn transient(mut self) -> Self {
        if let Some(own) = &mut self.own {
            own.durable = false;
        }
        self
    }

    /// An argument of the queue's declaration. A queue that is there with other arguments is refused by the broker.
    ///
    /// # Default
    /// None for a classic queue. A quorum queue of ours has `x-queue-type`, an `x-delivery-limit` of 1000, and what that
    /// gives up goes to the dead letters (`x-dead-letter-exchange`, `x-dead-letter-routing-key`)
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<FieldValue>) -> Self {
        if let Some(own) = &mut self.own {
            own.arguments.insert(name.into(), value.into());
        }
        self
    }

    /// The kind of the queues beside it, for delays and dead letters.
    ///
    /// # Default
    /// That of the queue; classic for an [`existing`](Self::existing) one
    pub fn beside(mut self, kind: QueueKind) -> Self {
        self.beside = kind;
        self
    }

    /// Lets the broker dead-letter what it would otherwise drop from this queue: messages whose time to live is over, and those
    /// that a length limit pushes out. They arrive among the dead letters of the queue, with the broker's reason. Nothing changes
    /// for an [`existing`](Self::existing) queue: set a policy with `dead-letter-exchange` (empty) and
    /// `dead-letter-routing-key` (`QUEUE.dead`) for that one.
    ///
    /// # Default
    /// On for a quorum queue. Off for a classic queue, which others may declare without arguments
    pub fn dead_letter_dropped(mut self) -> Self {
        let dead = self.dead();
        if let Some(own) = &mut self.own {
            own.arguments.insert("x-dead-letter-exchange".to_owned(), "".into());
            own.arguments.insert("x-dead-letter-routing-key".to_owned(), dead.into());
        }
        self
    }

    pub(crate) fn check(&self) -> Result<(), SettingError> {
        if self.name.is_empty() || self.name.len() > LONGEST_NAME {
            let text = format!("a queue's name has 1 to {LONGEST_NAME} bytes, since others are named after it");
            return Err(SettingError::new(text));
        }
        let Some(own) = &self.own else { return Ok(()) };
        if !own.durable && own.kind == QueueKind::Quorum {
            return Err(SettingError::new("a quorum queue is durable: take a classic one, or leave out transient()"));
        }
        match own.arguments.keys().find(|name| name.len() > 255) {
            Some(_) => Err(SettingError::new("the name of a queue's argument has more than 255 bytes")),
            None => Ok(()),
        }
    }

    /// Whether deliveries say how often they were delivered.
    pub(crate) fn counts(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.kind == QueueKind::Quorum)
    }

    /// Declares it, or looks whether it is there.
    pub(crate) async fn declare(&self, channel: &Channel) -> lapin::Result<()> {
        let (options, arguments) = match &self.own {
            Some(own) => (durable(own.durable), own.arguments(&self.dead())),
            None => (QueueDeclareOptions { passive: true, ..durable(true) }, Fields::new()),
        };
        declare(channel, &self.name, options, table(&arguments)).await.map(|_| ())
    }

    /// Where dead letters go.
    pub(crate) fn dead(&self) -> String {
        format!("{}.dead", self.name)
    }

    /// How all queues for delays begin.
    pub(crate) fn retries(&self) -> String {
        format!("{}.retry.", self.name)
    }

    /// Where a message waits this long, in ms.
    pub(crate) fn retry(&self, ms: u64) -> String {
        format!("{}{ms}", self.retries())
    }

    pub(crate) async fn declare_dead(&self, channel: &Channel) -> lapin::Result<()> {
        let mut arguments = Fields::new();
        self.beside.write(&mut arguments);
        if self.beside == QueueKind::Quorum {
            // Whoever looks at a dead letter and leaves it there has it delivered once more.
            arguments.insert("x-delivery-limit".to_owned(), LOOKED_AT.into());
        }
        declare(channel, &self.dead(), durable(true), table(&arguments)).await.map(|_| ())
    }

    /// A queue that hands each message to the queue it came from after so many ms.
    pub(crate) async fn declare_retry(&self, channel: &Channel, ms: u64) -> lapin::Result<()> {
        let delay = i64::try_from(ms).unwrap_or(i64::MAX);
        let mut arguments = Fields::from([
            ("x-message-ttl".to_owned(), delay.into()),
            ("x-dead-letter-exchange".to_owned(), "".into()),
            ("x-dead-letter-routing-key".to_owned(), self.name.as_str().into()),
            ("x-expires".to_owned(), delay.saturating_add(UNUSED_MS).into()),
        ]);
        self.beside.write(&mut arguments);
        self.beside.hand_over_at_least_once(&mut arguments);
        declare(channel, &self.retry(ms), durable(true), table(&arguments)).await.map(|_| ())
    }
}

/// A queue for delays goes away, with all that is in it, this long after its last message is due: publishing does not
/// count as use, so it is declared again before the time is up ([`REDECLARE`]).
const UNUSED_MS: i64 = 24 * 3600 * 1000;
/// Far below [`UNUSED_MS`].
pub(crate) const REDECLARE: std::time::Duration = std::time::Duration::from_secs(3600);

impl Own {
    fn arguments(&self, dead: &str) -> Fields {
        let mut arguments = Fields::new();
        self.kind.write(&mut arguments);
        if self.kind == QueueKind::Quorum {
            arguments.insert("x-delivery-limit".to_owned(), DELIVERY_LIMIT.into());
            arguments.insert("x-dead-letter-exchange".to_owned(), "".into());
            arguments.insert("x-dead-letter-routing-key".to_owned(), dead.into());
        }
        arguments.extend(self.arguments.clone());
        arguments
    }
}

impl QueueKind {
    pub(crate) fn write(self, arguments: &mut Fields) {
        // A classic queue is declared without its kind, as everybody else does: where the vhost's default differs, the
        // queue that is there would be refused.
        if self == Self::Quorum {
            arguments.insert("x-queue-type".to_owned(), "quorum".into());
        }
    }

    /// Lets a quorum queue keep a message until the next queue has confirmed it. By default the broker does not wait for that,
    /// and a crash loses the message. A classic queue has no such setting.
    pub(crate) fn hand_over_at_least_once(self, arguments: &mut Fields) {
        if self == Self::Quorum {
            arguments.insert("x-dead-letter-strategy".to_owned(), "at-least-once".into());
            arguments.insert("x-overflow".to_owned(), "reject-publish".into());
        }
    }
}

fn durable(durable: bool) -> QueueDeclareOptions {
    QueueDeclareOptions { durable, ..QueueDeclareOptions::default() }
}

async fn declare(
    channel: &Channel,
    name: &str,
    options: QueueDeclareOptions,
    arguments: FieldTable,
) -> lapin::Result<Declared> {
    channel.queue_declare(ShortString::from(name), options, arguments).await
}

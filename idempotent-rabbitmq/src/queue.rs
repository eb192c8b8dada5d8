//! The consumed queue and its auxiliary queues.
use lapin::options::QueueDeclareOptions;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Queue as Declared};

use crate::SettingError;
use crate::field::{FieldValue, Fields, table};

/// The queue to consume, and how the source declares it.
///
/// ```
/// use idempotent_rabbitmq::Queue;
///
/// let ours = Queue::quorum("orders").argument("x-max-length", 100_000);
/// let declared_elsewhere = Queue::existing("orders").auxiliary_kind(idempotent_rabbitmq::QueueKind::Quorum);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Queue {
    pub(crate) name: String,
    /// The declaration, or `None` if other programs declare the queue.
    pub(crate) own: Option<QueueDeclaration>,
    /// The kind of the auxiliary queues.
    pub(crate) auxiliary: QueueKind,
}

/// The declaration of a queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueDeclaration {
    kind: QueueKind,
    durable: bool,
    arguments: Fields,
}

/// The storage of a queue's messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum QueueKind {
    /// Messages are stored on one node.
    Classic,
    /// Messages are replicated by Raft. The queue counts deliveries, and hands delayed messages over at least once.
    Quorum,
}

/// The number of deliveries of one message after which a quorum queue dead-letters the message. The limit is far above
/// the consumer's limit, whose dead letters contain the reason. The broker's default drops the message.
const DELIVERY_LIMIT: i64 = 1000;
/// The number of reads after which a quorum queue drops a dead letter. The broker's default since 4.0 is 20.
const DEAD_LETTER_READS: i64 = 1_000_000;
/// Leaves room for `.retry.` and the longest delay.
const LONGEST_NAME: usize = 255 - 20;

impl Queue {
    /// Returns a classic queue, which the source declares if it is missing.
    pub fn classic(name: impl Into<String>) -> Self {
        Self::own(name, QueueKind::Classic)
    }

    /// Returns a quorum queue, which the source declares if it is missing.
    pub fn quorum(name: impl Into<String>) -> Self {
        Self::own(name, QueueKind::Quorum)
    }

    /// Returns a queue that other programs declare. The source only checks that the queue exists.
    pub fn existing(name: impl Into<String>) -> Self {
        Self { name: name.into(), own: None, auxiliary: QueueKind::Classic }
    }

    fn own(name: impl Into<String>, kind: QueueKind) -> Self {
        let own = QueueDeclaration { kind, durable: true, arguments: Fields::new() };
        Self { name: name.into(), own: Some(own), auxiliary: kind }
    }

    /// Makes the queue transient: the queue is lost when its broker restarts. A quorum queue cannot be transient. Has
    /// no effect on an [existing](Self::existing) queue.
    ///
    /// # Default
    /// Durable
    pub fn transient(mut self) -> Self {
        if let Some(own) = &mut self.own {
            own.durable = false;
        }
        self
    }

    /// Sets an argument of the queue's declaration. The broker refuses a declaration whose arguments differ from those
    /// of the existing queue.
    ///
    /// # Default
    /// None for a classic queue. A quorum queue has `x-queue-type`, an `x-delivery-limit` of 1000, and
    /// `x-dead-letter-exchange` and `x-dead-letter-routing-key`, which dead-letter messages over the limit
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<FieldValue>) -> Self {
        if let Some(own) = &mut self.own {
            own.arguments.insert(name.into(), value.into());
        }
        self
    }

    /// Sets the kind of the auxiliary queues for delays and dead letters.
    ///
    /// # Default
    /// The kind of the queue; classic for an [`existing`](Self::existing) queue
    pub fn auxiliary_kind(mut self, kind: QueueKind) -> Self {
        self.auxiliary = kind;
        self
    }

    /// Lets the broker dead-letter messages that it would otherwise drop from this queue: messages whose time to live
    /// has ended, and messages over the length limit. The dead letters contain the broker's reason.
    ///
    /// Has no effect on an [`existing`](Self::existing) queue. For such a queue, set a policy with
    /// `dead-letter-exchange` (empty) and `dead-letter-routing-key` (`QUEUE.dead`).
    ///
    /// # Default
    /// On for a quorum queue. Off for a classic queue, which other programs may declare without arguments
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
            let text = format!("a queue's name has 1 to {LONGEST_NAME} bytes, because auxiliary queues add a suffix");
            return Err(SettingError::new(text));
        }
        let Some(own) = &self.own else { return Ok(()) };
        if !own.durable && own.kind == QueueKind::Quorum {
            return Err(SettingError::new("a quorum queue is durable: use a classic queue, or leave out transient()"));
        }
        match own.arguments.keys().find(|name| name.len() > 255) {
            Some(_) => Err(SettingError::new("the name of a queue's argument has more than 255 bytes")),
            None => Ok(()),
        }
    }

    /// Returns whether deliveries contain the number of earlier deliveries.
    pub(crate) fn counts(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.kind == QueueKind::Quorum)
    }

    /// Declares the queue, or checks that it exists.
    pub(crate) async fn declare(&self, channel: &Channel) -> lapin::Result<()> {
        let (options, arguments) = match &self.own {
            Some(own) => (durable(own.durable), own.arguments(&self.dead())),
            None => (QueueDeclareOptions { passive: true, ..durable(true) }, Fields::new()),
        };
        declare(channel, &self.name, options, table(&arguments)).await.map(|_| ())
    }

    /// Returns the name of the queue for dead letters.
    pub(crate) fn dead(&self) -> String {
        format!("{}.dead", self.name)
    }

    /// Returns the common prefix of all queues for delays.
    pub(crate) fn retries(&self) -> String {
        format!("{}.retry.", self.name)
    }

    /// Returns the name of the queue for a delay in ms.
    pub(crate) fn retry(&self, ms: u64) -> String {
        format!("{}{ms}", self.retries())
    }

    pub(crate) async fn declare_dead(&self, channel: &Channel) -> lapin::Result<()> {
        let mut arguments = Fields::new();
        self.auxiliary.write(&mut arguments);
        if self.auxiliary == QueueKind::Quorum {
            // A consumer that reads a dead letter and returns it causes one more delivery.
            arguments.insert("x-delivery-limit".to_owned(), DEAD_LETTER_READS.into());
        }
        declare(channel, &self.dead(), durable(true), table(&arguments)).await.map(|_| ())
    }

    /// Declares a queue that hands each message back to the consumed queue after this many ms.
    pub(crate) async fn declare_retry(&self, channel: &Channel, ms: u64) -> lapin::Result<()> {
        let delay = i64::try_from(ms).unwrap_or(i64::MAX);
        let mut arguments = Fields::from([
            ("x-message-ttl".to_owned(), delay.into()),
            ("x-dead-letter-exchange".to_owned(), "".into()),
            ("x-dead-letter-routing-key".to_owned(), self.name.as_str().into()),
            ("x-expires".to_owned(), delay.saturating_add(UNUSED_MS).into()),
        ]);
        self.auxiliary.write(&mut arguments);
        self.auxiliary.hand_over_at_least_once(&mut arguments);
        declare(channel, &self.retry(ms), durable(true), table(&arguments)).await.map(|_| ())
    }
}

/// A queue for delays expires this long after its last message is due. Publishing does not count as use, so the queue
/// is declared again before it expires ([`REDECLARE`]).
const UNUSED_MS: i64 = 24 * 3600 * 1000;
/// Far below [`UNUSED_MS`].
pub(crate) const REDECLARE: std::time::Duration = std::time::Duration::from_secs(3600);

impl QueueDeclaration {
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
        // A classic queue is declared without its kind, as other programs do: if the vhost has another default, the
        // broker would refuse the existing queue.
        if self == Self::Quorum {
            arguments.insert("x-queue-type".to_owned(), "quorum".into());
        }
    }

    /// Lets a quorum queue keep a message until the next queue has confirmed it. By default the broker does not wait,
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

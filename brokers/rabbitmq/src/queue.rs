//! The consumed queue, its retry queues and its dead letter queue.
use std::time::Duration;

use idempotent_mq::{SourceError, SourceErrorKind};
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Connection, Queue as Declared};

use crate::SettingError;
use crate::error::{answered, failure, is_refused_for};
use crate::field_value::{FieldValue, Fields, field_table};
use crate::properties::MAX_SHORT_STRING;
use crate::retry_levels::MAX_DELAY;

/// A queue to consume, with the settings of its declaration.
///
/// ```
/// use idempotent_rabbitmq::Queue;
///
/// let declared = Queue::quorum("orders").argument("x-max-length", 100_000);
/// let existing = Queue::existing("orders").auxiliary_kind(idempotent_rabbitmq::QueueKind::Quorum);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Queue {
    pub(crate) name: String,
    /// The settings of the declaration, or `None` for a queue that other programs declare.
    declaration: Option<QueueDeclaration>,
    /// The kind of the retry queues and the dead letter queue.
    auxiliary_kind: QueueKind,
    /// True if the broker delivers to one consumer at a time.
    single_active: bool,
    /// The delays of messages that the broker keeps for a later delivery.
    delayed_retry: Option<DelayedRetry>,
}

/// The shortest and the longest delay.
#[derive(Clone, Copy, Debug)]
struct DelayedRetry {
    min: Duration,
    max: Duration,
}

/// The settings with which a queue is declared.
#[derive(Clone, Debug)]
struct QueueDeclaration {
    kind: QueueKind,
    durable: bool,
    arguments: Fields,
}

/// The kind of a queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum QueueKind {
    /// A queue on one node.
    Classic,
    /// A queue that is replicated by Raft. The queue counts deliveries, and passes delayed messages on at least once.
    Quorum,
}

/// Number of deliveries after which a quorum queue dead-letters a message by itself. The limit is far above that of the
/// consumer, whose dead letters contain the reason. By default the broker drops such a message.
const DELIVERY_LIMIT: i64 = 1000;
/// Number of deliveries after which a quorum queue drops a dead letter. Each listing of a letter is a delivery. The
/// default of RabbitMQ 4.0 and later is 20.
const DEAD_LETTER_DELIVERY_LIMIT: i64 = 1_000_000;
/// The argument of a queue that delivers to one consumer at a time.
const SINGLE_ACTIVE: &str = "x-single-active-consumer";
/// The argument of a queue that keeps messages for a later delivery.
const DELAYED_RETRY_TYPE: &str = "x-delayed-retry-type";
/// Maximum length of a name. The names of retry queues add `.retry.` and the longest delay.
const MAX_NAME: usize = MAX_SHORT_STRING - 20;

impl Queue {
    /// Creates a classic queue, which is declared if missing.
    pub fn classic(name: impl Into<String>) -> Self {
        Self::with_kind(name, QueueKind::Classic)
    }

    /// Creates a quorum queue, which is declared if missing.
    pub fn quorum(name: impl Into<String>) -> Self {
        Self::with_kind(name, QueueKind::Quorum)
    }

    /// Creates a queue that other programs declare. The source only checks that the queue exists.
    pub fn existing(name: impl Into<String>) -> Self {
        Self::new(name.into(), None, QueueKind::Classic)
    }

    fn with_kind(name: impl Into<String>, kind: QueueKind) -> Self {
        let declaration = QueueDeclaration { kind, durable: true, arguments: Fields::new() };
        Self::new(name.into(), Some(declaration), kind)
    }

    fn new(name: String, declaration: Option<QueueDeclaration>, auxiliary_kind: QueueKind) -> Self {
        Self { name, declaration, auxiliary_kind, single_active: false, delayed_retry: None }
    }

    /// Lets the broker delete the queue when the broker restarts. Not possible for a quorum queue, and without effect
    /// on an [`existing`](Self::existing) queue.
    ///
    /// # Default
    /// Durable
    pub fn transient(mut self) -> Self {
        if let Some(declaration) = &mut self.declaration {
            declaration.durable = false;
        }
        self
    }

    /// Sets an argument of the queue's declaration. If the queue exists with other arguments, the source fails at its
    /// start.
    ///
    /// # Default
    /// None for a classic queue. A quorum queue has `x-queue-type`, an `x-delivery-limit` of 1000, and the dead letter
    /// queue as the target of dead-lettering (`x-dead-letter-exchange`, `x-dead-letter-routing-key`)
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<FieldValue>) -> Self {
        if let Some(declaration) = &mut self.declaration {
            declaration.arguments.insert(name.into(), value.into());
        }
        self
    }

    /// Lets the broker deliver to one of the consumers at a time, which keeps the order of messages. When a consumer
    /// stops, its source stays subscribed until all held messages are settled, so that the next consumer gets no later
    /// message before these. An [`existing`](Self::existing) queue must have the argument `x-single-active-consumer`.
    ///
    /// # Default
    /// Off
    pub fn single_active_consumer(mut self) -> Self {
        self.single_active = true;
        self.argument(SINGLE_ACTIVE, true)
    }

    /// Lets the broker delay deferred messages, such as a duplicate of a message that is being handled. Without this, a
    /// deferral publishes a copy to a retry queue, waits for the confirm, and acknowledges the original. Needs a quorum
    /// queue and RabbitMQ 4.3 or later.
    ///
    /// The broker delivers the message again after `min`. After failed deliveries, such as a crash of a consumer, the
    /// delay is `min` times their number, and at most `max`. A deferral of more than `max` is a copy, and so is each retry
    /// after a failed run, since only a copy can store the number of the attempt. A message that a stopping consumer
    /// gives back waits, too. The broker's count `messages` includes waiting messages, and `messages_ready` does not.
    /// An `expiration` counts from the last delivery, since a deferral stores nothing with the message.
    ///
    /// # Default
    /// Off
    pub fn delayed_retry(mut self, min: Duration, max: Duration) -> Self {
        self.delayed_retry = Some(DelayedRetry { min, max });
        // The other types also delay the messages of a consumer that has crashed.
        self.argument(DELAYED_RETRY_TYPE, "returned")
            .argument("x-delayed-retry-min", milliseconds(min))
            .argument("x-delayed-retry-max", milliseconds(max))
    }

    /// Sets the kind of the retry queues and the dead letter queue.
    ///
    /// # Default
    /// The kind of the queue, or classic for an [`existing`](Self::existing) queue
    pub fn auxiliary_kind(mut self, kind: QueueKind) -> Self {
        self.auxiliary_kind = kind;
        self
    }

    /// Lets the broker dead-letter messages that it would otherwise drop from this queue: expired messages, and
    /// messages that exceed a length limit. The dead letters contain the broker's reason. There is no effect on an
    /// [`existing`](Self::existing) queue, which needs a policy with an empty `dead-letter-exchange` and the
    /// `dead-letter-routing-key` `QUEUE.dead`.
    ///
    /// # Default
    /// On for a quorum queue. Off for a classic queue, which other programs may declare without arguments
    pub fn dead_letter_dropped(mut self) -> Self {
        let dead = self.dead_name();
        if let Some(declaration) = &mut self.declaration {
            declaration.arguments.insert("x-dead-letter-exchange".to_owned(), "".into());
            declaration.arguments.insert("x-dead-letter-routing-key".to_owned(), dead.into());
        }
        self
    }

    pub(crate) fn check(&self) -> Result<(), SettingError> {
        if self.name.is_empty() || self.name.len() > MAX_NAME {
            let text = format!(
                "queue: the name is empty or too long; use 1 to {MAX_NAME} bytes, since other names contain it"
            );
            return Err(SettingError::new(text));
        }
        if let Some(DelayedRetry { min, max }) = self.delayed_retry {
            if !self.counts_deliveries() {
                return Err(SettingError::new(
                    "delayed_retry: only possible for a queue of Queue::quorum; remove delayed_retry(), or use such a queue",
                ));
            }
            if min < Duration::from_millis(1) || min > max || max > MAX_DELAY {
                return Err(SettingError::new(
                    "delayed_retry: a delay is out of range; use 1 ms <= min <= max <= 1 day",
                ));
            }
        }
        let Some(declaration) = &self.declaration else { return Ok(()) };
        if !declaration.durable && declaration.kind == QueueKind::Quorum {
            return Err(SettingError::new(
                "transient: not possible for a quorum queue; remove transient(), or use a classic queue",
            ));
        }
        if declaration.arguments.keys().any(|name| name.len() > MAX_SHORT_STRING) {
            let text = format!("queue: the name of an argument is too long; use at most {MAX_SHORT_STRING} bytes");
            return Err(SettingError::new(text));
        }
        Ok(())
    }

    /// Returns whether the broker delivers to one consumer at a time.
    pub(crate) fn is_single_active(&self) -> bool {
        let argument = self.declaration.as_ref().and_then(|declaration| declaration.arguments.get(SINGLE_ACTIVE));
        self.single_active || argument == Some(&FieldValue::Bool(true))
    }

    /// Returns whether the broker counts the deliveries of each message.
    pub(crate) fn counts_deliveries(&self) -> bool {
        self.declaration.as_ref().is_some_and(|declaration| declaration.kind == QueueKind::Quorum)
    }

    /// Returns whether the broker delays a message that is deferred for this time.
    pub(crate) fn delays(&self, after: Duration) -> bool {
        self.delayed_retry.is_some_and(|delays| after <= delays.max)
    }

    /// Checks that the broker supports the settings of the queue. A broker accepts arguments that it does not know.
    ///
    /// # Errors
    /// - `Fatal`: the broker does not delay messages.
    /// - `Transient`: the connection failed.
    pub(crate) async fn check_support(&self, connection: &Connection) -> Result<(), SourceError> {
        if self.delayed_retry.is_none() {
            return Ok(());
        }
        let text = "checking whether the broker delays messages failed; see the cause";
        match answered(knows_delayed_retry(connection)).await.map_err(|error| failure(text, error))? {
            true => Ok(()),
            false => Err(SourceError::new(
                SourceErrorKind::Fatal,
                "delayed_retry: the broker does not delay messages, which needs RabbitMQ 4.3; remove delayed_retry(), or \
                 upgrade the broker",
            )),
        }
    }

    /// Declares or checks the queue, and declares its dead letter queue. A quorum queue dead-letters messages by itself,
    /// also before the first settlement.
    pub(crate) async fn declare_with_dead(&self, channel: &Channel) -> lapin::Result<()> {
        self.declare(channel).await?;
        self.declare_dead(channel).await
    }

    /// Declares the queue, or checks that an existing one is present.
    pub(crate) async fn declare(&self, channel: &Channel) -> lapin::Result<()> {
        let (options, arguments) = match &self.declaration {
            Some(declaration) => (options(declaration.durable), declaration.arguments(&self.dead_name())),
            None => (QueueDeclareOptions { passive: true, ..options(true) }, Fields::new()),
        };
        declare(channel, &self.name, options, field_table(&arguments)).await.map(|_| ())
    }

    /// Returns the name of the dead letter queue.
    pub(crate) fn dead_name(&self) -> String {
        format!("{}.dead", self.name)
    }

    /// Returns the prefix of the names of all retry queues.
    pub(crate) fn retry_prefix(&self) -> String {
        format!("{}.retry.", self.name)
    }

    /// Returns the name of the retry queue with this delay in ms.
    pub(crate) fn retry_name(&self, ms: u64) -> String {
        format!("{}{ms}", self.retry_prefix())
    }

    pub(crate) async fn declare_dead(&self, channel: &Channel) -> lapin::Result<()> {
        let mut arguments = Fields::new();
        self.auxiliary_kind.set_type(&mut arguments);
        if self.auxiliary_kind == QueueKind::Quorum {
            // Each listing of a dead letter is a delivery.
            arguments.insert("x-delivery-limit".to_owned(), DEAD_LETTER_DELIVERY_LIMIT.into());
        }
        declare(channel, &self.dead_name(), options(true), field_table(&arguments)).await.map(|_| ())
    }

    /// Declares the retry queue that returns each message to the consumed queue after this delay in ms.
    pub(crate) async fn declare_retry(&self, channel: &Channel, ms: u64) -> lapin::Result<()> {
        let delay = i64::try_from(ms).unwrap_or(i64::MAX);
        let mut arguments = Fields::from([
            ("x-message-ttl".to_owned(), delay.into()),
            ("x-dead-letter-exchange".to_owned(), "".into()),
            ("x-dead-letter-routing-key".to_owned(), self.name.as_str().into()),
            ("x-expires".to_owned(), delay.saturating_add(UNUSED_MS).into()),
        ]);
        self.auxiliary_kind.set_type(&mut arguments);
        self.auxiliary_kind.set_at_least_once(&mut arguments);
        declare(channel, &self.retry_name(ms), options(true), field_table(&arguments)).await.map(|_| ())
    }
}

/// Time after which the broker deletes an unused retry queue with its messages, in addition to the delay. Publishing
/// does not count as use, so a queue is declared again earlier, after [`REDECLARE_INTERVAL`].
const UNUSED_MS: i64 = 24 * 3600 * 1000;
/// Time after which a queue is declared again, far below [`UNUSED_MS`].
pub(crate) const REDECLARE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(3600);

impl QueueDeclaration {
    fn arguments(&self, dead: &str) -> Fields {
        let mut arguments = Fields::new();
        self.kind.set_type(&mut arguments);
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
    pub(crate) fn set_type(self, arguments: &mut Fields) {
        // A classic queue is declared without a type, as by most programs. A vhost may have another default type, and
        // the broker would then refuse a declaration of an existing queue as classic.
        if self == Self::Quorum {
            arguments.insert("x-queue-type".to_owned(), "quorum".into());
        }
    }

    /// Lets a quorum queue keep a message until the next queue has confirmed the message. By default the broker does
    /// not wait, so a crash can lose the message. A classic queue has no such setting.
    pub(crate) fn set_at_least_once(self, arguments: &mut Fields) {
        if self == Self::Quorum {
            arguments.insert("x-dead-letter-strategy".to_owned(), "at-least-once".into());
            arguments.insert("x-overflow".to_owned(), "reject-publish".into());
        }
    }
}

/// Returns whether the broker knows the argument of a delayed retry: it then refuses the argument for a classic queue.
async fn knows_delayed_retry(connection: &Connection) -> lapin::Result<bool> {
    let channel = connection.create_channel().await?;
    let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let arguments = Fields::from([
        ("x-queue-type".to_owned(), "classic".into()),
        (DELAYED_RETRY_TYPE.to_owned(), "returned".into()),
    ]);
    match declare(&channel, "", options, field_table(&arguments)).await {
        Ok(declared) => {
            channel.queue_delete(declared.name().clone(), QueueDeleteOptions::default()).await.map(|_| false)
        }
        Err(error) if is_refused_for(&error, DELAYED_RETRY_TYPE) => Ok(true),
        Err(error) => Err(error),
    }
}

fn milliseconds(delay: Duration) -> i64 {
    i64::try_from(delay.as_millis()).unwrap_or(i64::MAX)
}

fn options(durable: bool) -> QueueDeclareOptions {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_settings_are_valid() {
        let delayed = |min, max| Queue::quorum("q").delayed_retry(min, max);
        let ms = Duration::from_millis;
        let argument = |bytes| Queue::classic("q").argument("a".repeat(bytes), true);
        let named = |bytes| Queue::existing("q".repeat(bytes));
        let valid = [delayed(ms(1), MAX_DELAY), delayed(ms(1), ms(1)), Queue::classic("q").transient(), argument(255)];
        assert!(valid.iter().chain(&[named(MAX_NAME)]).all(|queue| queue.check().is_ok()));
        let invalid = [Queue::quorum("q").transient(), argument(256), named(MAX_NAME + 1)];
        assert!(invalid.iter().all(|queue| queue.check().is_err()));
        let queue = delayed(ms(300), ms(2_000));
        assert!(queue.delays(ms(2_000)) && !queue.delays(ms(2_001)));
        assert_eq!(queue.declaration.unwrap().arguments["x-delayed-retry-min"], FieldValue::from(300_i64));
        let single = [named(1).single_active_consumer(), Queue::classic("q").argument(SINGLE_ACTIVE, true)];
        assert!(single.iter().all(Queue::is_single_active) && !argument(1).is_single_active());
    }
}

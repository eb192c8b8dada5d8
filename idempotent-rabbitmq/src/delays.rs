//! The exchanges and queues through which a delayed message passes.
//!
//! A delay is a sum of levels: 100 ms, 200 ms, 400 ms and so on. Each level has one queue, whose messages all wait equally
//! long. After it an exchange looks at a header of the message, which names the next level or the end. Routing key and
//! other headers stay as the producer set them, so any exchange and any consumer can be the destination.
mod levels;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lapin::options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::ShortString;
use lapin::{Channel, ExchangeKind};

pub(crate) use self::levels::LONGEST;
use self::levels::levels;
use crate::Route;
use crate::field::{FieldValue, Fields, table};
use crate::queue::{QueueKind, REDECLARE};

/// The means by which RabbitMQ delays messages for a [`RabbitPublisher`](crate::RabbitPublisher).
///
/// [`quorum`](Self::quorum) and [`classic`](Self::classic) use queues with a time to live and a dead-letter exchange, which
/// every broker has. The publisher declares them when it first needs them.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub struct DelayTopology(Means);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Means {
    Queues(QueueKind),
    Plugin,
}

/// The exchange to which delayed messages go.
const PREFIX: &str = "idempotent.delay";
/// The beginning of the names of all queues for delays.
pub(crate) const QUEUES: &str = "idempotent.delay.";
/// The beginning of the names of all headers that steer a delayed message.
pub(crate) const HEADER: &str = "idempotent-delay-";
const TO: &str = "idempotent-delay-to";
const FIRST: &str = "idempotent-delay-first";
/// The value of the header of the last level.
const END: &str = "end";
/// The header of the plugin, in ms.
const PLUGIN_DELAY: &str = "x-delay";
/// The type of exchange that the plugin brings.
const PLUGIN_TYPE: &str = "x-delayed-message";
/// The longest delay that the plugin takes: 2^32 - 1 ms.
const PLUGIN_LONGEST: Duration = Duration::from_millis(u32::MAX as u64);

impl DelayTopology {
    /// Delays by replicated queues. A level hands each message over at least once: neither a restart nor the loss of a
    /// minority of nodes loses a message. Needs RabbitMQ 3.10 or later, with its stable feature flags enabled.
    ///
    /// A message whose level ends while the next queue is not available yet, such as during a restart of the broker, may be
    /// up to 3 minutes late. The broker then publishes the message again after its setting
    /// `dead_letter_worker_publisher_confirm_timeout`.
    pub fn quorum() -> Self {
        Self(Means::Queues(QueueKind::Quorum))
    }

    /// Delays by classic queues. Messages survive a restart of the broker, but a node that dies at the moment a message
    /// leaves a level can lose the message.
    pub fn classic() -> Self {
        Self(Means::Queues(QueueKind::Classic))
    }

    /// Delays by the plugin `rabbitmq_delayed_message_exchange`, on brokers that have it: up to 49 days, to the ms. The
    /// plugin keeps each waiting message on one node only, and not in a queue: the message is lost with that node's disk,
    /// and no count shows it.
    ///
    /// A publisher to a broker without the plugin refuses delayed messages, with an error that says so.
    pub fn plugin() -> Self {
        Self(Means::Plugin)
    }

    pub(crate) fn is_plugin(&self) -> bool {
        self.0 == Means::Plugin
    }

    pub(crate) fn longest(&self) -> Duration {
        if self.is_plugin() { PLUGIN_LONGEST } else { LONGEST }
    }

    /// Returns the way of a message with this delay, which is not above [`longest`](Self::longest).
    pub(crate) fn path(&self, delay: Duration, to: &Route) -> Path {
        let levels = if self.is_plugin() { Vec::new() } else { levels(delay) };
        Path { means: self.0, levels, delay, to: to.clone() }
    }
}

/// The way of one message: the levels, longest first, and the destination.
#[derive(Debug)]
pub(crate) struct Path {
    means: Means,
    levels: Vec<u64>,
    delay: Duration,
    to: Route,
}

impl Path {
    /// The exchange to publish to, with the destination's routing key.
    pub(crate) fn entry(&self) -> String {
        self.base().to_owned()
    }

    /// Whether the broker says that a message has reached a queue. The plugin's exchange keeps messages itself.
    pub(crate) fn is_routed(&self) -> bool {
        self.means != Means::Plugin
    }

    /// Returns the headers that steer the message.
    pub(crate) fn headers(&self) -> Fields {
        let mut headers = Fields::from([(TO.to_owned(), self.destination().into())]);
        if self.means == Means::Plugin {
            let ms = i64::try_from(self.delay.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
            headers.insert(PLUGIN_DELAY.to_owned(), ms.into());
        }
        for (name, next) in self.hops() {
            headers.insert(name, next.into());
        }
        headers
    }

    /// Whether the destination is a queue, and not an exchange.
    pub(crate) fn is_to_queue(&self) -> bool {
        self.to.exchange.is_empty()
    }

    /// Each header, and the level that it names.
    fn hops(&self) -> Vec<(String, String)> {
        let names = std::iter::once(FIRST.to_owned()).chain(self.levels.iter().map(after));
        let next = self.levels.iter().map(ToString::to_string).chain([END.to_owned()]);
        if self.levels.is_empty() { Vec::new() } else { names.zip(next).collect() }
    }

    fn base(&self) -> &'static str {
        match self.means {
            Means::Queues(QueueKind::Quorum) => PREFIX,
            Means::Queues(QueueKind::Classic) => "idempotent.delay.classic",
            Means::Plugin => "idempotent.delay.plugin",
        }
    }

    /// The exchange that routes a message to its destination when its time has come.
    fn exit(&self) -> String {
        if self.is_routed() { format!("{}.deliver", self.base()) } else { self.base().to_owned() }
    }

    /// Two kinds of names, so that a queue is not taken for an exchange of the same name.
    fn destination(&self) -> String {
        let Route { exchange, key } = &self.to;
        if exchange.is_empty() { format!("queue {key}") } else { format!("exchange {exchange}") }
    }

    /// Declares the plugin's exchange. The broker closes the connection where the plugin is missing.
    pub(crate) async fn declare_plugin(&self, channel: &Channel) -> lapin::Result<()> {
        let arguments = Fields::from([("x-delayed-type".to_owned(), FieldValue::from("headers"))]);
        exchange(channel, self.base(), ExchangeKind::Custom(PLUGIN_TYPE.to_owned()), &arguments).await
    }

    /// Binds the destination, which must exist. Each message does this anew: the binding goes with the queue or exchange,
    /// which may have been deleted and declared again.
    pub(crate) async fn bind(&self, channel: &Channel) -> lapin::Result<()> {
        let (exit, matching) = (self.exit(), matching(TO, &self.destination()));
        let Route { exchange, key } = &self.to;
        if exchange.is_empty() {
            let options = QueueBindOptions::default();
            channel
                .queue_bind(key.as_str().into(), exit.into(), ShortString::default(), options, table(&matching))
                .await
        } else {
            bind(channel, exchange, &exit, &matching).await
        }
    }
}

/// What a publisher has declared by one connection.
#[derive(Debug, Default)]
pub(crate) struct Declared(Mutex<HashMap<(String, String), Instant>>);

impl Declared {
    /// Forgets all, so that it is declared again: something may have been deleted. `false` if nothing was known.
    pub(crate) fn forget(&self) -> bool {
        let mut known = self.known();
        let was_known = !known.is_empty();
        known.clear();
        was_known
    }

    /// Declares the exchanges and queues of a way, but for those that were declared lately.
    pub(crate) async fn declare(&self, path: &Path, channel: &Channel) -> lapin::Result<()> {
        let Means::Queues(kind) = path.means else { return Ok(()) };
        for (header, next) in path.hops() {
            let hop = (header, next);
            if self.known().get(&hop).is_some_and(|at| at.elapsed() < REDECLARE) {
                continue;
            }
            path.declare_hop(kind, &hop, channel).await?;
            self.known().insert(hop, Instant::now());
        }
        Ok(())
    }

    /// Whether the plugin's exchange was declared.
    pub(crate) fn has_plugin(&self) -> bool {
        self.known().contains_key(&plugin())
    }

    pub(crate) fn note_plugin(&self) {
        self.known().insert(plugin(), Instant::now());
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(String, String), Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn plugin() -> (String, String) {
    (PLUGIN_TYPE.to_owned(), String::new())
}

impl Path {
    /// Declares one hop: the exchange that a message comes from, and the queue or the last exchange that it goes to.
    async fn declare_hop(
        &self,
        kind: QueueKind,
        (header, next): &(String, String),
        channel: &Channel,
    ) -> lapin::Result<()> {
        let (base, none) = (self.base(), Fields::new());
        let level = header.strip_prefix(HEADER).and_then(|rest| rest.strip_prefix("after-"));
        let from = level.map_or_else(|| base.to_owned(), |ms| after_exchange(base, ms));
        exchange(channel, &from, ExchangeKind::Headers, &none).await?;
        let matching = matching(header, next);
        if next == END {
            exchange(channel, &self.exit(), ExchangeKind::Headers, &none).await?;
            return bind(channel, &self.exit(), &from, &matching).await;
        }
        // Before its queue: what leaves the queue must find it.
        exchange(channel, &after_exchange(base, next), ExchangeKind::Headers, &none).await?;
        let queue = format!("{base}.{next}");
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let arguments = waiting(kind, next.parse().unwrap_or(i64::MAX), after_exchange(base, next));
        channel.queue_declare(queue.as_str().into(), options, table(&arguments)).await?;
        let options = QueueBindOptions::default();
        channel.queue_bind(queue.into(), from.into(), ShortString::default(), options, table(&matching)).await
    }
}

/// The arguments of a queue in which messages wait, without a routing key: theirs stays.
fn waiting(kind: QueueKind, ms: i64, then: String) -> Fields {
    let mut arguments =
        Fields::from([("x-message-ttl".to_owned(), ms.into()), ("x-dead-letter-exchange".to_owned(), then.into())]);
    kind.write(&mut arguments);
    kind.hand_over_at_least_once(&mut arguments);
    arguments
}

fn after(level: &u64) -> String {
    format!("{HEADER}after-{level}")
}

fn after_exchange(base: &str, level: &str) -> String {
    format!("{base}.after.{level}")
}

fn matching(header: &str, value: &str) -> Fields {
    Fields::from([("x-match".to_owned(), "all".into()), (header.to_owned(), value.into())])
}

async fn exchange(channel: &Channel, name: &str, kind: ExchangeKind, arguments: &Fields) -> lapin::Result<()> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(name.into(), kind, options, table(arguments)).await
}

async fn bind(channel: &Channel, to: &str, from: &str, matching: &Fields) -> lapin::Result<()> {
    let options = ExchangeBindOptions::default();
    channel.exchange_bind(to.into(), from.into(), ShortString::default(), options, table(matching)).await
}

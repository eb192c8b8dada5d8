//! The exchanges and queues through which a delayed message passes.
//!
//! A delay is a sum of levels: 100 ms, 200 ms, 400 ms and so on. Each level has one queue, in which all messages wait
//! for the same time. A headers exchange then reads the header that names the next level or the end. The routing key
//! and the other headers stay as the producer set them, so any exchange and any consumer can be the destination.
mod delay_sum;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lapin::options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::ShortString;
use lapin::{Channel, ExchangeKind};

pub(crate) use self::delay_sum::LONGEST;
use self::delay_sum::levels;
use crate::Route;
use crate::field::{FieldValue, Fields, table};
use crate::queue::{QueueKind, REDECLARE};

/// The method by which RabbitMQ delays messages of a [`RabbitPublisher`](crate::RabbitPublisher).
///
/// [`quorum`](Self::quorum) and [`classic`](Self::classic) use queues with a time to live and a dead-letter exchange,
/// which every broker supports. The publisher declares the queues when it first needs them.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub struct DelayTopology(DelayMethod);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DelayMethod {
    Queues(QueueKind),
    Plugin,
}

/// The prefix of the exchanges for delayed messages.
const PREFIX: &str = "idempotent.delay";
/// The prefix of the queues for delayed messages.
pub(crate) const QUEUES: &str = "idempotent.delay.";
/// The prefix of the headers that route a delayed message.
pub(crate) const HEADER: &str = "idempotent-delay-";
const TO: &str = "idempotent-delay-to";
const FIRST: &str = "idempotent-delay-first";
/// The value of the header of the last level.
const END: &str = "end";
/// The header of the plugin, in ms.
const PLUGIN_DELAY: &str = "x-delay";
/// The exchange type of the plugin.
const PLUGIN_TYPE: &str = "x-delayed-message";
/// The longest delay that the plugin accepts: 2^32 - 1 ms.
const PLUGIN_LONGEST: Duration = Duration::from_millis(u32::MAX as u64);

impl DelayTopology {
    /// Delays messages by replicated queues. Each level hands a message over at least once: neither a restart nor the
    /// loss of a minority of nodes loses a message. Requires RabbitMQ 3.10 or later, with its stable feature flags
    /// enabled.
    ///
    /// If the next queue is unavailable when a level ends, such as during a restart of the broker, the message may be
    /// up to 3 minutes late. The broker then publishes the message again after
    /// `dead_letter_worker_publisher_confirm_timeout`.
    pub fn quorum() -> Self {
        Self(DelayMethod::Queues(QueueKind::Quorum))
    }

    /// Delays messages by classic queues. Messages survive a restart of the broker. A message can be lost if its node
    /// fails at the moment when the message leaves a level.
    pub fn classic() -> Self {
        Self(DelayMethod::Queues(QueueKind::Classic))
    }

    /// Delays messages by the plugin `rabbitmq_delayed_message_exchange`, by up to 49 days, with a precision of 1 ms.
    /// The plugin keeps each waiting message on one node, outside of queues: the message is lost with the disk of that
    /// node, and no counter includes it.
    ///
    /// A publisher to a broker without the plugin refuses delayed messages, with an error that names the plugin.
    pub fn plugin() -> Self {
        Self(DelayMethod::Plugin)
    }

    pub(crate) fn is_plugin(&self) -> bool {
        self.0 == DelayMethod::Plugin
    }

    pub(crate) fn longest(&self) -> Duration {
        if self.is_plugin() { PLUGIN_LONGEST } else { LONGEST }
    }

    /// Returns the path of a message with this delay, which must not exceed [`longest`](Self::longest).
    pub(crate) fn path(&self, delay: Duration, to: &Route) -> DelayPath {
        let levels = if self.is_plugin() { Vec::new() } else { levels(delay) };
        DelayPath { means: self.0, levels, delay, to: to.clone() }
    }
}

/// The path of a delayed message: the levels, longest first, and the destination.
#[derive(Debug)]
pub(crate) struct DelayPath {
    means: DelayMethod,
    levels: Vec<u64>,
    delay: Duration,
    to: Route,
}

impl DelayPath {
    /// Returns the exchange to publish to, with the routing key of the destination.
    pub(crate) fn entry(&self) -> String {
        self.base().to_owned()
    }

    /// Returns whether the broker reports that the message has reached a queue. The plugin's exchange stores messages
    /// itself.
    pub(crate) fn is_routed(&self) -> bool {
        self.means != DelayMethod::Plugin
    }

    /// Returns the headers that route the message.
    pub(crate) fn headers(&self) -> Fields {
        let mut headers = Fields::from([(TO.to_owned(), self.destination().into())]);
        if self.means == DelayMethod::Plugin {
            let ms = i64::try_from(self.delay.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
            headers.insert(PLUGIN_DELAY.to_owned(), ms.into());
        }
        for (name, next) in self.hops() {
            headers.insert(name, next.into());
        }
        headers
    }

    /// Returns whether the destination is a queue instead of an exchange.
    pub(crate) fn is_to_queue(&self) -> bool {
        self.to.exchange.is_empty()
    }

    /// Returns each header, and the level that it names.
    fn hops(&self) -> Vec<(String, String)> {
        let names = std::iter::once(FIRST.to_owned()).chain(self.levels.iter().map(after));
        let next = self.levels.iter().map(ToString::to_string).chain([END.to_owned()]);
        if self.levels.is_empty() { Vec::new() } else { names.zip(next).collect() }
    }

    fn base(&self) -> &'static str {
        match self.means {
            DelayMethod::Queues(QueueKind::Quorum) => PREFIX,
            DelayMethod::Queues(QueueKind::Classic) => "idempotent.delay.classic",
            DelayMethod::Plugin => "idempotent.delay.plugin",
        }
    }

    /// Returns the exchange that routes a due message to its destination.
    fn exit(&self) -> String {
        if self.is_routed() { format!("{}.deliver", self.base()) } else { self.base().to_owned() }
    }

    /// Returns the name of the destination. Queues and exchanges have different prefixes, so a queue and an exchange
    /// of the same name differ.
    fn destination(&self) -> String {
        let Route { exchange, key } = &self.to;
        if exchange.is_empty() { format!("queue {key}") } else { format!("exchange {exchange}") }
    }

    /// Declares the plugin's exchange. A broker without the plugin closes the connection.
    pub(crate) async fn declare_plugin(&self, channel: &Channel) -> lapin::Result<()> {
        let arguments = Fields::from([("x-delayed-type".to_owned(), FieldValue::from("headers"))]);
        exchange(channel, self.base(), ExchangeKind::Custom(PLUGIN_TYPE.to_owned()), &arguments).await
    }

    /// Binds the destination, which must exist. Each message repeats the binding, because the destination may have
    /// been deleted and declared again.
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

/// The objects that a publisher has declared on one connection.
#[derive(Debug, Default)]
pub(crate) struct DeclaredPaths(Mutex<HashMap<(String, String), Instant>>);

impl DeclaredPaths {
    /// Forgets all declarations, so that they are repeated: an object may have been deleted. Returns false if nothing
    /// was declared.
    pub(crate) fn forget(&self) -> bool {
        let mut known = self.known();
        let was_known = !known.is_empty();
        known.clear();
        was_known
    }

    /// Declares the exchanges and queues of a path, except those that were declared recently.
    pub(crate) async fn declare(&self, path: &DelayPath, channel: &Channel) -> lapin::Result<()> {
        let DelayMethod::Queues(kind) = path.means else { return Ok(()) };
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

    /// Returns whether the plugin's exchange was declared.
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

impl DelayPath {
    /// Declares one hop: the exchange that the message comes from, and the queue or the last exchange that follows.
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
        // Before the queue, so that a message that leaves the queue finds the exchange.
        exchange(channel, &after_exchange(base, next), ExchangeKind::Headers, &none).await?;
        let queue = format!("{base}.{next}");
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let arguments = waiting(kind, next.parse().unwrap_or(i64::MAX), after_exchange(base, next));
        channel.queue_declare(queue.as_str().into(), options, table(&arguments)).await?;
        let options = QueueBindOptions::default();
        channel.queue_bind(queue.into(), from.into(), ShortString::default(), options, table(&matching)).await
    }
}

/// Returns the arguments of a queue for waiting messages. Without a dead-letter routing key, messages keep their own
/// key.
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

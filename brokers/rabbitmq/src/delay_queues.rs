//! The exchanges and queues through which a delayed message passes.
//!
//! A delay is a sum of levels: 100 ms, 200 ms, 400 ms and so on. Each level has a queue, in which all messages wait for
//! the same time. Then an exchange routes each message by a header, which names the next level or the end. The routing
//! key and the other headers are unchanged, so the destination can be any queue or exchange, with any consumer.
mod doubling_levels;
pub(crate) mod names;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lapin::options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::ShortString;
use lapin::{Channel, ExchangeKind};

use self::doubling_levels::{MAX_DELAY, split_delay};
use self::names::{
    BASE, DESTINATION, END, FIRST_LEVEL, HEADER_PREFIX, PLUGIN_DELAY, PLUGIN_TYPE, exchange_after, header_after,
};
use crate::Route;
use crate::field_value::{FieldValue, Fields, field_table};
use crate::queue::{QueueKind, REDECLARE_INTERVAL};

/// The means by which RabbitMQ delays messages for a [`RabbitPublisher`](crate::RabbitPublisher).
///
/// [`quorum`](Self::quorum) and [`classic`](Self::classic) use queues with a time to live and a dead-letter exchange,
/// which every broker supports. The publisher declares these queues at their first use.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub struct DelayTopology(DelayMethod);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DelayMethod {
    Queues(QueueKind),
    Plugin,
}

/// The maximum delay of the plugin: 2^32 - 1 ms.
const MAX_PLUGIN_DELAY: Duration = Duration::from_millis(u32::MAX as u64);

impl DelayTopology {
    /// Delays messages in quorum queues. A level passes each message on at least once: neither a restart nor the loss
    /// of a minority of nodes loses a message. This needs RabbitMQ 3.10 or later, with its stable feature flags
    /// enabled.
    ///
    /// A message may be up to 3 minutes late if its level ends while the next queue is unavailable, for example during
    /// a restart of the broker. The broker then publishes the message again after its setting
    /// `dead_letter_worker_publisher_confirm_timeout`.
    pub fn quorum() -> Self {
        Self(DelayMethod::Queues(QueueKind::Quorum))
    }

    /// Delays messages in classic queues. Messages survive a restart of the broker. A crash of the node at the moment
    /// when a message leaves a level can lose the message.
    pub fn classic() -> Self {
        Self(DelayMethod::Queues(QueueKind::Classic))
    }

    /// Delays messages by the plugin `rabbitmq_delayed_message_exchange`, up to 49 days and with a resolution of 1 ms.
    /// The plugin stores each waiting message on one node, outside of queues: the message is lost with the node's disk,
    /// and no queue length includes the message.
    ///
    /// If the broker does not have the plugin, the publisher refuses delayed messages.
    pub fn plugin() -> Self {
        Self(DelayMethod::Plugin)
    }

    pub(crate) fn is_plugin(&self) -> bool {
        self.0 == DelayMethod::Plugin
    }

    pub(crate) fn max_delay(&self) -> Duration {
        if self.is_plugin() { MAX_PLUGIN_DELAY } else { MAX_DELAY }
    }

    /// Returns the path of a message with this delay, which is at most [`max_delay`](Self::max_delay).
    pub(crate) fn path(&self, delay: Duration, to: &Route) -> DelayPath {
        let levels = if self.is_plugin() { Vec::new() } else { split_delay(delay) };
        DelayPath { method: self.0, levels, delay, to: to.clone() }
    }
}

/// The path of one message: its levels, longest first, and its destination.
#[derive(Debug)]
pub(crate) struct DelayPath {
    method: DelayMethod,
    levels: Vec<u64>,
    delay: Duration,
    to: Route,
}

impl DelayPath {
    /// Returns the exchange to publish to, with the routing key of the destination.
    pub(crate) fn entry(&self) -> String {
        self.base().to_owned()
    }

    /// Returns whether the entry routes messages to queues, so that the broker can return a message. The plugin's
    /// exchange stores messages itself.
    pub(crate) fn is_routed(&self) -> bool {
        self.method != DelayMethod::Plugin
    }

    /// Returns the headers that route the message.
    pub(crate) fn headers(&self) -> Fields {
        let mut headers = Fields::from([(DESTINATION.to_owned(), self.destination().into())]);
        if self.method == DelayMethod::Plugin {
            let ms = i64::try_from(self.delay.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
            headers.insert(PLUGIN_DELAY.to_owned(), ms.into());
        }
        for (name, next) in self.steps() {
            headers.insert(name, next.into());
        }
        headers
    }

    /// Returns whether the destination is a queue, and not an exchange.
    pub(crate) fn is_to_queue(&self) -> bool {
        self.to.exchange.is_empty()
    }

    /// Returns how many bytes the broker adds to the headers at most: an entry in `x-death` for each level, and the headers
    /// of the first and the last death.
    pub(crate) fn added_bytes(&self) -> usize {
        600 + self.levels.len() * (200 + self.to.key.len())
    }

    /// Returns the header of each step, and the level that the header names.
    fn steps(&self) -> Vec<(String, String)> {
        let names = std::iter::once(FIRST_LEVEL.to_owned()).chain(self.levels.iter().copied().map(header_after));
        let next = self.levels.iter().map(ToString::to_string).chain([END.to_owned()]);
        if self.levels.is_empty() { Vec::new() } else { names.zip(next).collect() }
    }

    fn base(&self) -> &'static str {
        match self.method {
            DelayMethod::Queues(QueueKind::Quorum) => BASE,
            DelayMethod::Queues(QueueKind::Classic) => "idempotent.delay.classic",
            DelayMethod::Plugin => "idempotent.delay.plugin",
        }
    }

    /// Returns the exchange that routes a message to its destination after the delay.
    fn exit(&self) -> String {
        if self.is_routed() { format!("{}.deliver", self.base()) } else { self.base().to_owned() }
    }

    /// Returns the name of the destination. The name includes the type, since a queue and an exchange may have the same
    /// name.
    fn destination(&self) -> String {
        let Route { exchange, key } = &self.to;
        if exchange.is_empty() { format!("queue {key}") } else { format!("exchange {exchange}") }
    }

    /// Declares the plugin's exchange. A broker without the plugin closes the connection.
    pub(crate) async fn declare_plugin(&self, channel: &Channel) -> lapin::Result<()> {
        let arguments = Fields::from([("x-delayed-type".to_owned(), FieldValue::from("headers"))]);
        declare_exchange(channel, self.base(), ExchangeKind::Custom(PLUGIN_TYPE.to_owned()), &arguments).await
    }

    /// Binds the destination, which must exist. This happens for each message, because a queue or exchange that was
    /// deleted and declared again has lost its binding.
    pub(crate) async fn bind(&self, channel: &Channel) -> lapin::Result<()> {
        let (exit, matching) = (self.exit(), matching(DESTINATION, &self.destination()));
        let Route { exchange, key } = &self.to;
        if exchange.is_empty() {
            let options = QueueBindOptions::default();
            channel
                .queue_bind(key.as_str().into(), exit.into(), ShortString::default(), options, field_table(&matching))
                .await
        } else {
            bind_exchange(channel, exchange, &exit, &matching).await
        }
    }

    /// Declares one step: the exchange of the step, and the queue or the last exchange to which it leads.
    async fn declare_step(
        &self,
        kind: QueueKind,
        (header, next): &(String, String),
        channel: &Channel,
    ) -> lapin::Result<()> {
        let (base, none) = (self.base(), Fields::new());
        let level = header.strip_prefix(HEADER_PREFIX).and_then(|rest| rest.strip_prefix("after-"));
        let from = level.map_or_else(|| base.to_owned(), |ms| exchange_after(base, ms));
        declare_exchange(channel, &from, ExchangeKind::Headers, &none).await?;
        let matching = matching(header, next);
        if next == END {
            declare_exchange(channel, &self.exit(), ExchangeKind::Headers, &none).await?;
            return bind_exchange(channel, &self.exit(), &from, &matching).await;
        }
        // The exchange is declared before its queue, because the first message that leaves the queue needs the
        // exchange.
        declare_exchange(channel, &exchange_after(base, next), ExchangeKind::Headers, &none).await?;
        let queue = format!("{base}.{next}");
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let arguments = level_arguments(kind, next.parse().unwrap_or(i64::MAX), exchange_after(base, next));
        channel.queue_declare(queue.as_str().into(), options, field_table(&arguments)).await?;
        let options = QueueBindOptions::default();
        channel.queue_bind(queue.into(), from.into(), ShortString::default(), options, field_table(&matching)).await
    }
}

/// The steps and queues that were declared over one connection, with the times of their declarations.
#[derive(Debug, Default)]
pub(crate) struct DeclaredSteps(Mutex<HashMap<(String, String), Instant>>);

impl DeclaredSteps {
    /// Removes all steps, so that they are declared again. Returns false if there were none.
    pub(crate) fn clear(&self) -> bool {
        let mut known = self.known();
        let was_known = !known.is_empty();
        known.clear();
        was_known
    }

    /// Declares the exchanges and queues of a path, except those that were declared recently.
    pub(crate) async fn declare(&self, path: &DelayPath, channel: &Channel) -> lapin::Result<()> {
        let DelayMethod::Queues(kind) = path.method else { return Ok(()) };
        for (header, next) in path.steps() {
            let step = (header, next);
            if self.is_recent(&step) {
                continue;
            }
            path.declare_step(kind, &step, channel).await?;
            self.note(step);
        }
        Ok(())
    }

    /// Returns whether this step was declared recently.
    pub(crate) fn is_recent(&self, step: &(String, String)) -> bool {
        self.known().get(step).is_some_and(|at| at.elapsed() < REDECLARE_INTERVAL)
    }

    pub(crate) fn note(&self, step: (String, String)) {
        self.known().insert(step, Instant::now());
    }

    pub(crate) fn forget(&self, step: &(String, String)) {
        self.known().remove(step);
    }

    /// Returns whether the plugin's exchange was declared.
    pub(crate) fn has_plugin(&self) -> bool {
        self.known().contains_key(&plugin_step())
    }

    pub(crate) fn note_plugin(&self) {
        self.known().insert(plugin_step(), Instant::now());
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(String, String), Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn plugin_step() -> (String, String) {
    (PLUGIN_TYPE.to_owned(), String::new())
}

/// Returns the arguments of the queue of a level. Without `x-dead-letter-routing-key`, messages keep their routing key.
fn level_arguments(kind: QueueKind, ms: i64, next: String) -> Fields {
    let mut arguments =
        Fields::from([("x-message-ttl".to_owned(), ms.into()), ("x-dead-letter-exchange".to_owned(), next.into())]);
    kind.set_type(&mut arguments);
    kind.set_at_least_once(&mut arguments);
    arguments
}

fn matching(header: &str, value: &str) -> Fields {
    Fields::from([("x-match".to_owned(), "all".into()), (header.to_owned(), value.into())])
}

async fn declare_exchange(channel: &Channel, name: &str, kind: ExchangeKind, arguments: &Fields) -> lapin::Result<()> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(name.into(), kind, options, field_table(arguments)).await
}

async fn bind_exchange(channel: &Channel, to: &str, from: &str, matching: &Fields) -> lapin::Result<()> {
    let options = ExchangeBindOptions::default();
    channel.exchange_bind(to.into(), from.into(), ShortString::default(), options, field_table(matching)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_shows_its_destination_its_exit_and_what_the_broker_adds() {
        let delay = Duration::from_millis(300);
        let to_queue = DelayTopology::quorum().path(delay, &Route::queue("orders"));
        let to_exchange = DelayTopology::plugin().path(delay, &Route::exchange("payments", "paid"));
        assert_eq!([to_queue.is_to_queue(), to_exchange.is_to_queue()], [true, false]);
        assert_eq!([to_queue.destination(), to_exchange.destination()], ["queue orders", "exchange payments"]);
        assert_eq!([to_queue.exit(), to_exchange.exit()], [format!("{BASE}.deliver"), to_exchange.entry()]);
        // Levels of 200 and 100 ms, and a key of 6 bytes.
        assert_eq!([to_queue.added_bytes(), to_exchange.added_bytes()], [600 + 2 * 206, 600]);
    }

    #[test]
    fn a_declared_plugin_is_known_until_all_is_declared_again() {
        let declared = DeclaredSteps::default();
        assert!(!declared.has_plugin());
        declared.note_plugin();
        assert!(declared.has_plugin() && declared.clear() && !declared.has_plugin());
    }
}

//! An exchange of a topology.
use lapin::options::ExchangeDeclareOptions;
use lapin::{Channel, ExchangeKind};

use crate::SettingError;
use crate::field::{FieldValue, Fields, table};
use crate::message::LONGEST;

/// An exchange, as a [`Topology`](crate::Topology) declares it.
///
/// ```
/// use idempotent_rabbitmq::Exchange;
///
/// let orders = Exchange::topic("orders").argument("alternate-exchange", "unrouted");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Exchange {
    pub(super) name: String,
    kind: ExchangeKind,
    durable: bool,
    arguments: Fields,
}

impl Exchange {
    /// Returns an exchange that routes a message to the queues bound by exactly its routing key.
    pub fn direct(name: impl Into<String>) -> Self {
        Self::of(name, ExchangeKind::Direct)
    }

    /// Returns an exchange that routes by patterns of the routing key: `*` is one word, `#` any number of words.
    pub fn topic(name: impl Into<String>) -> Self {
        Self::of(name, ExchangeKind::Topic)
    }

    /// Returns an exchange that routes each message to all queues bound to it.
    pub fn fanout(name: impl Into<String>) -> Self {
        Self::of(name, ExchangeKind::Fanout)
    }

    /// Returns an exchange that routes by the headers of a message.
    pub fn headers(name: impl Into<String>) -> Self {
        Self::of(name, ExchangeKind::Headers)
    }

    fn of(name: impl Into<String>, kind: ExchangeKind) -> Self {
        Self { name: name.into(), kind, durable: true, arguments: Fields::new() }
    }

    /// Lets the exchange go when its broker restarts.
    ///
    /// # Default
    /// Durable
    pub fn transient(mut self) -> Self {
        self.durable = false;
        self
    }

    /// Sets an argument of the exchange's declaration, such as `alternate-exchange`.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<FieldValue>) -> Self {
        self.arguments.insert(name.into(), value.into());
        self
    }

    pub(super) fn check(&self) -> Result<(), SettingError> {
        if self.name.is_empty() || self.name.len() > LONGEST {
            return Err(SettingError::new(format!("an exchange's name has 1 to {LONGEST} bytes")));
        }
        match self.arguments.keys().any(|name| name.len() > LONGEST) {
            true => Err(SettingError::new(format!("the name of an exchange's argument has more than {LONGEST} bytes"))),
            false => Ok(()),
        }
    }

    pub(super) async fn declare(&self, channel: &Channel) -> lapin::Result<()> {
        let options = ExchangeDeclareOptions { durable: self.durable, ..ExchangeDeclareOptions::default() };
        channel.exchange_declare(self.name.as_str().into(), self.kind.clone(), options, table(&self.arguments)).await
    }
}

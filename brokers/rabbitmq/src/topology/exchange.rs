//! An exchange of a topology.
use lapin::options::ExchangeDeclareOptions;
use lapin::{Channel, ExchangeKind};

use crate::SettingError;
use crate::field_value::{FieldValue, Fields, field_table};
use crate::properties::MAX_SHORT_STRING;

/// An exchange of a [`Topology`](crate::Topology).
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
    /// Creates an exchange that routes a message to the queues that are bound with its exact routing key.
    pub fn direct(name: impl Into<String>) -> Self {
        Self::with_kind(name, ExchangeKind::Direct)
    }

    /// Creates an exchange that routes by patterns of the routing key. `*` matches one word, and `#` any number of
    /// words.
    pub fn topic(name: impl Into<String>) -> Self {
        Self::with_kind(name, ExchangeKind::Topic)
    }

    /// Creates an exchange that routes each message to all queues that are bound to the exchange.
    pub fn fanout(name: impl Into<String>) -> Self {
        Self::with_kind(name, ExchangeKind::Fanout)
    }

    /// Creates an exchange that routes by the headers of a message.
    pub fn headers(name: impl Into<String>) -> Self {
        Self::with_kind(name, ExchangeKind::Headers)
    }

    fn with_kind(name: impl Into<String>, kind: ExchangeKind) -> Self {
        Self { name: name.into(), kind, durable: true, arguments: Fields::new() }
    }

    /// Lets the broker delete the exchange when the broker restarts.
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
        if self.name.is_empty() || self.name.len() > MAX_SHORT_STRING {
            let text = format!("exchange: the name is empty or too long; use 1 to {MAX_SHORT_STRING} bytes");
            return Err(SettingError::new(text));
        }
        if self.arguments.keys().any(|name| name.len() > MAX_SHORT_STRING) {
            let text = format!("exchange: the name of an argument is too long; use at most {MAX_SHORT_STRING} bytes");
            return Err(SettingError::new(text));
        }
        Ok(())
    }

    pub(super) async fn declare(&self, channel: &Channel) -> lapin::Result<()> {
        let options = ExchangeDeclareOptions { durable: self.durable, ..ExchangeDeclareOptions::default() };
        channel
            .exchange_declare(self.name.as_str().into(), self.kind.clone(), options, field_table(&self.arguments))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_at_most_255_bytes() {
        for (bytes, is_valid) in [(255, true), (256, false)] {
            assert_eq!(Exchange::fanout("e".repeat(bytes)).check().is_ok(), is_valid);
            assert_eq!(Exchange::fanout("e").argument("a".repeat(bytes), true).check().is_ok(), is_valid);
        }
    }
}

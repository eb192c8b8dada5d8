//! The settings of a source.
use std::sync::Arc;

use idempotent_mq::Position;

use crate::Queue;
use crate::carrier::ExpirySettings;
use crate::options::BrokerUrl;

#[derive(Debug)]
pub(crate) struct SourceSettings {
    pub(crate) url: BrokerUrl,
    pub(crate) queue: Queue,
    /// The queue's name, which all positions share.
    pub(crate) queue_name: Arc<str>,
    /// The name of the subscription. If empty, the broker generates one.
    pub(crate) consumer_tag: String,
    pub(crate) expiry: ExpirySettings,
}

impl SourceSettings {
    /// Returns the name of the connection, which the broker's tools show.
    pub(crate) fn connection_name(&self) -> String {
        format!("idempotent: {}", self.queue.name)
    }

    /// Returns the position of all deliveries. RabbitMQ has no offsets.
    pub(crate) fn position(&self) -> Position {
        Position::of(self.queue_name.clone())
    }
}

//! Settings of a source.
use std::sync::Arc;

use crate::Queue;
use crate::broker_address::BrokerAddress;
use crate::retry_headers::ExpirySource;

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) address: BrokerAddress,
    pub(crate) queue: Queue,
    /// The name of the queue, for positions.
    pub(crate) place: Arc<str>,
    /// The consumer tag. If it is empty, the broker creates one.
    pub(crate) consumer_tag: String,
    pub(crate) end: ExpirySource,
}

impl Settings {
    /// Returns the name of the connection, which the broker lists.
    pub(crate) fn name(&self) -> String {
        format!("idempotent: {}", self.queue.name)
    }
}

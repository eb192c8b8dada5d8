//! What a source was told.
use std::sync::Arc;

use crate::Queue;
use crate::address::Address;
use crate::marks::End;

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) address: Address,
    pub(crate) queue: Queue,
    /// The queue's name, for positions.
    pub(crate) place: Arc<str>,
    /// Empty: the broker makes one.
    pub(crate) consumer_tag: String,
    pub(crate) end: End,
}

impl Settings {
    /// The connection's, for whoever lists them at the broker.
    pub(crate) fn name(&self) -> String {
        format!("idempotent: {}", self.queue.name)
    }
}

//! The names of partitions, and the places of deliveries.
use std::sync::Arc;

/// A partition of a topic.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct PartitionName {
    pub(crate) topic: Arc<str>,
    pub(crate) number: i32,
}

/// The place of a delivery.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) partition: PartitionName,
    pub(crate) offset: i64,
    /// The generation of the assignment. A partition that is revoked and assigned again has a new one.
    pub(crate) generation: u64,
    /// The number of the delivery. A message that is delivered again has a new one.
    pub(crate) number: u64,
}

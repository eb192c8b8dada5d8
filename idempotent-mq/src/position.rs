//! Where a delivery came from.
use std::sync::Arc;

/// Where a delivery came from: queue or topic, partition, place in it. May be logged.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Position {
    /// The queue, topic or stream.
    pub source: Arc<str>,
    /// The partition, where the source has some.
    pub partition: Option<u32>,
    /// The message's place, the same each time it is delivered; `None` where there is no such thing, as in a queue whose
    /// retries are copies.
    pub offset: Option<Box<str>>,
}

impl Position {
    /// Somewhere in this queue, topic or stream.
    #[must_use]
    pub fn of(source: impl Into<Arc<str>>) -> Self {
        Self { source: source.into(), partition: None, offset: None }
    }

    /// Sets the partition.
    #[must_use]
    pub fn partition(mut self, partition: u32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Sets the place.
    #[must_use]
    pub fn offset(mut self, offset: impl ToString) -> Self {
        self.offset = Some(offset.to_string().into());
        self
    }

    /// Whether it lies in `area`: the same source, and the same partition and place where `area` names them.
    #[must_use]
    pub fn lies_in(&self, area: &Self) -> bool {
        self.source == area.source
            && (area.partition.is_none() || self.partition == area.partition)
            && (area.offset.is_none() || self.offset == area.offset)
    }
}

//! The position of a message in its queue.
use std::sync::Arc;

/// The position of a message: queue or topic, partition and offset. May be logged.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Position {
    /// The queue, topic or stream.
    pub source: Arc<str>,
    /// The partition, if the source has partitions.
    pub partition: Option<u32>,
    /// The offset of the message, which is the same for each delivery. `None` if the queue has no stable offsets, such as one
    /// whose retries are copies.
    pub offset: Option<Box<str>>,
}

impl Position {
    /// Creates a position in this queue, topic or stream, without partition and offset.
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

    /// Sets the offset.
    #[must_use]
    pub fn offset(mut self, offset: impl ToString) -> Self {
        self.offset = Some(offset.to_string().into());
        self
    }

    /// Returns true if the position is in `area`: the same source, and the same partition and offset if `area` has them.
    #[must_use]
    pub fn lies_in(&self, area: &Self) -> bool {
        self.source == area.source
            && (area.partition.is_none() || self.partition == area.partition)
            && (area.offset.is_none() || self.offset == area.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_contains_the_positions_that_have_all_its_parts() {
        let position = Position::of("orders").partition(3).offset(17);
        let lies_in = |area: Position| position.lies_in(&area);
        assert!(lies_in(Position::of("orders")) && lies_in(Position::of("orders").partition(3)));
        assert!(lies_in(Position::of("orders").offset(17)) && lies_in(position.clone()));
        assert!(!lies_in(Position::of("invoices")) && !lies_in(Position::of("orders").partition(4)));
        assert!(!lies_in(Position::of("orders").partition(3).offset(18)));
    }
}

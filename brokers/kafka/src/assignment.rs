//! The partitions of a member, which its thread, its settler and its deliveries share.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use idempotent_mq::Position;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::{Notify, watch};

use crate::outputs::Output;
use crate::partition::{Partition, Return};
use crate::place::{PartitionName, Place};

/// The state of a member's assignment.
#[derive(Debug, Default)]
pub(crate) struct Assigned {
    pub(crate) partitions: HashMap<PartitionName, Partition>,
    generation: u64,
    /// The number of the last delivery.
    number: u64,
    /// The revoked partitions that the consumer does not know about.
    pub(crate) revoked: Vec<Position>,
    /// True once the consumer has closed its source: nothing more is delivered.
    pub(crate) is_closing: bool,
}

/// The assignment, and the means to wait for its changes.
#[derive(Debug)]
pub(crate) struct Assignment {
    assigned: Mutex<Assigned>,
    /// True if offsets are committed in transactions only.
    pub(crate) is_transactional: bool,
    /// Wakes the thread of the member.
    pub(crate) changed: Notify,
    /// True once the group has given the member an assignment, which may be empty.
    pub(crate) joined: watch::Sender<bool>,
    /// True once the member has left its group.
    pub(crate) left: watch::Sender<bool>,
}

impl Assignment {
    pub(crate) fn new(is_transactional: bool) -> Arc<Self> {
        let (joined, left) = (watch::Sender::new(false), watch::Sender::new(false));
        Arc::new(Self { assigned: Mutex::default(), is_transactional, changed: Notify::new(), joined, left })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Assigned> {
        self.assigned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles a delivery. Returns false if the delivery no longer belongs to this member.
    pub(crate) fn settle(&self, place: &Place) -> bool {
        let is_settled = self.with(place, |partition| partition.settle(place.offset, place.number));
        self.changed.notify_one();
        is_settled
    }

    /// Returns a delivery, so that its message is delivered again. Returns false if the delivery no longer belongs to this member.
    pub(crate) fn give_back(&self, place: &Place, again: Return) -> bool {
        let is_returned = self.with(place, |partition| partition.give_back(place.offset, place.number, again));
        if is_returned {
            self.changed.notify_one();
        }
        is_returned
    }

    /// Adds a message to the transaction of the delivery at this position. Returns false if this member does not hold the delivery.
    pub(crate) fn add_output(&self, position: &Position, output: Output) -> bool {
        let number = position.partition.and_then(|partition| i32::try_from(partition).ok());
        let offset = position.offset.as_deref().and_then(|offset| offset.parse().ok());
        let (Some(number), Some(offset)) = (number, offset) else { return false };
        let name = PartitionName { topic: position.source.clone(), number };
        self.lock().partitions.get_mut(&name).is_some_and(|partition| partition.add_output(offset, output))
    }

    /// Removes the messages of a delivery from its transaction.
    pub(crate) fn discard_outputs(&self, place: &Place) {
        self.with(place, |partition| {
            partition.outputs.discard(place.offset);
            true
        });
    }

    /// Returns whether a delivery belongs to this member and is unsettled.
    pub(crate) fn holds(&self, place: &Place) -> bool {
        self.with(place, |partition| partition.holds(place.offset, place.number))
    }

    fn with(&self, place: &Place, act: impl FnOnce(&mut Partition) -> bool) -> bool {
        let mut assigned = self.lock();
        let partition = assigned.partitions.get_mut(&place.partition);
        partition.filter(|partition| partition.generation == place.generation).is_some_and(act)
    }
}

impl Assigned {
    /// Adds partitions with a new generation.
    pub(crate) fn assign(&mut self, list: &TopicPartitionList) {
        self.generation += 1;
        for name in names(list) {
            self.partitions.insert(name, Partition::new(self.generation));
        }
    }

    /// Removes partitions, and returns the offsets to commit for them. Their deliveries no longer belong to this member.
    pub(crate) fn revoke(&mut self, list: &TopicPartitionList) -> TopicPartitionList {
        let mut offsets = TopicPartitionList::new();
        for name in names(list) {
            if let Some(mut partition) = self.partitions.remove(&name) {
                partition.uncommitted();
                add(&mut offsets, &name, partition.commit());
                let area = Position::of(name.topic);
                self.revoked.push(area.partition(u32::try_from(name.number).unwrap_or_default()));
            }
        }
        offsets
    }

    /// Returns the offsets to commit, of partitions whose offset has changed.
    pub(crate) fn commit(&mut self) -> TopicPartitionList {
        let mut offsets = TopicPartitionList::new();
        for (name, partition) in &mut self.partitions {
            add(&mut offsets, name, partition.commit());
        }
        offsets
    }

    /// Returns the offsets to commit, of partitions whose offset has changed, and the messages of the deliveries before them.
    pub(crate) fn transaction(&mut self) -> (TopicPartitionList, Vec<Arc<Output>>) {
        let (mut offsets, mut outputs) = (TopicPartitionList::new(), Vec::new());
        for (name, partition) in &mut self.partitions {
            let offset = partition.commit();
            if let Some(offset) = offset {
                outputs.extend(partition.outputs.before(offset));
            }
            add(&mut offsets, name, offset);
        }
        (offsets, outputs)
    }

    /// Removes the messages that a transaction with these offsets has produced.
    pub(crate) fn committed(&mut self, offsets: &TopicPartitionList) {
        for element in offsets.elements() {
            let name = PartitionName { topic: element.topic().into(), number: element.partition() };
            if let (Some(partition), Offset::Offset(offset)) = (self.partitions.get_mut(&name), element.offset()) {
                partition.outputs.produced(offset);
            }
        }
    }

    /// Returns true if the consumer has closed its source, and all deliveries are settled or returned.
    pub(crate) fn is_done(&self) -> bool {
        self.is_closing && self.partitions.values().all(|partition| partition.held() == 0)
    }

    /// Returns the number of a new delivery.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

fn add(offsets: &mut TopicPartitionList, name: &PartitionName, offset: Option<i64>) {
    if let Some(offset) = offset {
        // Fails only for special offsets, such as the end of the log.
        let _ = offsets.add_partition_offset(&name.topic, name.number, Offset::Offset(offset));
    }
}

/// Returns the partitions of a list.
pub(crate) fn names(list: &TopicPartitionList) -> Vec<PartitionName> {
    let name = |topic: &str, number| PartitionName { topic: topic.into(), number };
    list.elements().iter().map(|element| name(element.topic(), element.partition())).collect()
}

/// Returns a return without a delay and without a mark of its own.
pub(crate) fn at_once(mark: Option<crate::partition::RetryMark>) -> Return {
    Return { due: Instant::now(), mark }
}

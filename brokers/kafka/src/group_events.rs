//! The reactions of a member to events of its group: rebalances and results of commits.
use std::sync::Arc;

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::TopicPartitionList;
use tracing::{debug, warn};

use crate::assignment::Assignment;
use crate::place::PartitionName;

/// The context of the client. All events are handled on the thread of the member.
pub(crate) struct GroupEvents(pub(crate) Arc<Assignment>);

impl ClientContext for GroupEvents {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, text: &str) {
        debug!(target: "idempotent", facility, text, "kafka client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // `recv` returns the error, too.
        debug!(target: "idempotent", %error, reason, "kafka client");
    }
}

impl ConsumerContext for GroupEvents {
    /// Commits the settled prefixes of revoked partitions before their next owner reads them.
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => {
                self.0.lock().assign(list);
                self.0.joined.send_replace(true);
                // The member resumes partitions that it had paused before they were revoked.
                self.0.changed.notify_one();
            }
            Rebalance::Revoke(list) => {
                let offsets = self.0.lock().revoke(list);
                // A member that was expelled has no right to commit. Its messages are delivered again, and so are messages whose
                // transaction has not begun.
                if offsets.count() > 0
                    && !self.0.is_transactional
                    && !consumer.assignment_lost()
                    && let Err(error) = consumer.commit(&offsets, CommitMode::Sync)
                {
                    debug!(target: "idempotent", %error, "kafka: committing revoked partitions failed");
                }
                self.0.changed.notify_one();
            }
            Rebalance::Error(error) => debug!(target: "idempotent", %error, "kafka: rebalancing failed"),
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let mut assigned = self.0.lock();
        assigned.committing = None;
        if let Err(error) = result {
            debug!(target: "idempotent", %error, "kafka: committing failed; retrying");
            assigned.not_committed();
        } else {
            // The broker may reject the offsets of some partitions only.
            for partition in offsets.elements() {
                if let Err(error) = partition.error() {
                    let (topic, number) = (partition.topic(), partition.partition());
                    warn!(target: "idempotent", topic, number, %error, "kafka: the broker rejected an offset; retrying");
                    assigned.rejected(&PartitionName { topic: topic.into(), number });
                }
            }
        }
        drop(assigned);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Instant;

    use rdkafka::error::RDKafkaErrorCode;
    use rdkafka::topic_partition_list::Offset;

    use super::*;

    /// Creates an assignment with one settled message, whose commit has no result yet.
    fn committing() -> Arc<Assignment> {
        let assignment = Assignment::new(false);
        let mut list = TopicPartitionList::new();
        list.add_partition("orders", 0);
        let mut assigned = assignment.lock();
        assigned.assign(&list);
        for partition in assigned.partitions.values_mut() {
            partition.read(7, None, Instant::now(), 1);
            assert!(partition.settle(7, 1));
        }
        assert_eq!(assigned.commit(), offsets());
        assigned.committing = Some(Instant::now());
        drop(assigned);
        assignment
    }

    fn offsets() -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("orders", 0, Offset::Offset(8)).unwrap();
        list
    }

    #[test]
    fn a_result_ends_a_commit_and_a_failed_one_is_repeated() {
        let failed = Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::TopicAuthorizationFailed));
        for (result, repeated) in [(Ok(()), TopicPartitionList::new()), (failed, offsets())] {
            let assignment = committing();
            GroupEvents(assignment.clone()).commit_callback(result, &offsets());
            let mut assigned = assignment.lock();
            assert_eq!((assigned.committing, assigned.commit()), (None, repeated));
        }
    }
}

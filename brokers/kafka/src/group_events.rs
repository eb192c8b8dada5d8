//! The reactions of a member to events of its group: rebalances and results of commits.
use std::sync::Arc;

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::TopicPartitionList;
use tracing::debug;

use crate::assignment::Assignment;

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

impl GroupEvents {
    /// Waits until the client has paused its partitions for the rebalance.
    ///
    /// The client pauses them asynchronously, and resumes only those that are paused. On a busy machine, a partition is resumed
    /// before it is paused, and then stays paused until the next rebalance. A pause by the application waits for earlier ones.
    fn await_pauses(&self, consumer: &BaseConsumer<Self>) {
        let assigned = self.0.lock().pause_all();
        if assigned.count() > 0
            && let Err(error) = consumer.pause(&assigned)
        {
            debug!(target: "idempotent", %error, "kafka: pausing before a rebalance failed");
        }
        // The member resumes the partitions.
        self.0.changed.notify_one();
    }
}

impl ConsumerContext for GroupEvents {
    /// Commits the settled prefixes of revoked partitions before their next owner reads them.
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        self.await_pauses(consumer);
        match rebalance {
            Rebalance::Assign(list) => {
                self.0.lock().assign(list);
                self.0.joined.send_replace(true);
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

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            debug!(target: "idempotent", %error, "kafka: committing failed; retrying");
            self.0.lock().partitions.values_mut().for_each(crate::partition::Partition::uncommitted);
            self.0.changed.notify_one();
        }
    }
}

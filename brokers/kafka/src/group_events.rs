//! The reactions of a member to the rebalances of its group.
use std::sync::Arc;

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use tracing::debug;

use crate::assignment::Assignment;
use crate::connection_error::{ConnectionError, KeepsError};

/// The context of the client. All events are handled on the thread of the member.
pub(crate) struct GroupEvents(pub(crate) Arc<Assignment>, pub(crate) ConnectionError);

impl KeepsError for GroupEvents {
    fn connection_error(&self) -> &ConnectionError {
        &self.1
    }
}

impl ClientContext for GroupEvents {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, text: &str) {
        debug!(target: "idempotent", facility, text, "kafka client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.1.note(&error, reason);
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
}

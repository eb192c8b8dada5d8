//! The commits of a member. At most one commit is under way at a time, and each commit has a result.
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{debug, warn};

use crate::group_events::GroupEvents;

/// The minimum time between two commits.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// The time after a failed commit before the next one.
const RETRY: Duration = Duration::from_secs(1);

/// The commits of a member, which run on a thread of their own.
///
/// The client repeats a commit after a broken connection. A second commit under way could overtake the first one, whose older offsets
/// would then remain. The binding of the client reports results of blocking commits only.
#[derive(Debug)]
pub(crate) struct Commits {
    running: Option<JoinHandle<KafkaResult<()>>>,
    /// The time before which nothing is committed.
    due: Instant,
}

impl Commits {
    pub(crate) fn new(now: Instant) -> Self {
        Self { running: None, due: now }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the time of the next commit, or `None` while a commit is under way.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.running.is_none().then_some(self.due)
    }

    /// Postpones the next commit.
    pub(crate) fn postpone(&mut self, until: Instant) {
        self.due = until;
    }

    /// Starts to commit these offsets.
    pub(crate) fn start(&mut self, consumer: &Arc<StreamConsumer<GroupEvents>>, offsets: TopicPartitionList) {
        let consumer = consumer.clone();
        self.run(move || consumer.commit(&offsets, CommitMode::Sync));
    }

    fn run(&mut self, commit: impl FnOnce() -> KafkaResult<()> + Send + 'static) {
        self.due = Instant::now() + INTERVAL;
        self.running = Some(spawn_blocking(commit));
    }

    /// Waits for the end of the commit under way. Returns true if the broker has accepted all its offsets. Waits forever if no commit is
    /// under way.
    ///
    /// # Cancellation
    /// The commit goes on.
    pub(crate) async fn ended(&mut self) -> bool {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let result = running.await;
        self.running = None;
        let is_committed = matches!(result, Ok(Ok(())));
        if !is_committed {
            self.due = Instant::now() + RETRY;
        }
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) if is_of_rebalance(&error) => {
                debug!(target: "idempotent", %error, "kafka: a rebalance interrupted a commit; retrying");
            }
            Ok(Err(error)) => warn!(target: "idempotent", %error, "kafka: committing failed; retrying"),
            Err(error) => warn!(target: "idempotent", %error, "kafka: the thread of a commit failed; retrying"),
        }
        is_committed
    }
}

/// Returns true for errors of a rebalance and of an expelled member, which loses its partitions.
fn is_of_rebalance(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{IllegalGeneration, RebalanceInProgress, UnknownMemberId};
    matches!(error.rdkafka_error_code(), Some(IllegalGeneration | RebalanceInProgress | UnknownMemberId))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn the_next_commit_waits_for_the_result_of_the_one_under_way() {
        let (end, ended) = mpsc::channel();
        let (start, mut commits) = (Instant::now(), Commits::new(Instant::now()));
        assert!(commits.due().is_some());
        commits.run(move || ended.recv().map_err(|_| KafkaError::Canceled));
        assert_eq!((commits.due(), commits.is_running()), (None, true));
        assert!(end.send(()).is_ok() && commits.ended().await);
        assert!(
            !commits.is_running()
                && commits.due().is_some_and(|due| (start + INTERVAL..=Instant::now() + INTERVAL).contains(&due))
        );
    }

    #[test]
    fn a_postponed_commit_is_due_then() {
        let (now, mut commits) = (Instant::now(), Commits::new(Instant::now()));
        commits.postpone(now + RETRY);
        assert_eq!(commits.due(), Some(now + RETRY));
    }

    #[test]
    fn an_expelled_member_and_a_rebalance_are_no_failures_of_the_broker() {
        use RDKafkaErrorCode as Code;
        let is_one = |code| is_of_rebalance(&KafkaError::ConsumerCommit(code));
        assert!([Code::IllegalGeneration, Code::RebalanceInProgress, Code::UnknownMemberId].into_iter().all(is_one));
        assert!(!is_one(Code::TopicAuthorizationFailed));
    }

    #[tokio::test]
    async fn a_failed_commit_is_reported_and_the_next_one_waits_longer() {
        let (start, mut commits) = (Instant::now(), Commits::new(Instant::now()));
        commits.run(|| Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::TopicAuthorizationFailed)));
        assert!(!commits.ended().await);
        assert!(commits.due().is_some_and(|due| due >= start + RETRY));
    }
}

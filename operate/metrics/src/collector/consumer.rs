//! The counts and the state of consumers, and the number of dead letters.
use async_trait::async_trait;
use idempotent_mq::{ConsumerCounters, ConsumerCounts, DeadLetters};

use super::MetricsCollector;
use super::source::{FollowedTotals, Source};
use crate::catalogue;
use crate::recording::Recording;

impl MetricsCollector {
    /// Adds a consumer by its [counters](idempotent_mq::Consumer::counters). Use the group of the consumer as the name.
    pub fn consumer(self, group: impl Into<String>, counters: ConsumerCounters) -> Self {
        let group = group.into();
        let of_end = |end| self.recording.counter(&catalogue::CONSUMER_DELIVERIES, &[&group, end]);
        let others = [
            &catalogue::CONSUMER_PAUSES,
            &catalogue::CONSUMER_NODE_OUTAGES,
            &catalogue::CONSUMER_SOURCE_ERRORS,
            &catalogue::CONSUMER_UNDECODABLE,
            &catalogue::CONSUMER_ALERTS,
        ];
        let others = FollowedTotals::new(others.map(|metric| self.recording.counter(metric, &[&group])));
        let ends = FollowedTotals::new(ENDS.map(of_end));
        self.add(ConsumerSource { group, counters, ends, others })
    }

    /// Adds the dead letters of a queue. Each reading counts them by a call of the broker.
    pub fn dead_letters(self, queue: impl Into<String>, letters: impl DeadLetters + 'static) -> Self {
        self.add(DeadLetterSource { queue: queue.into(), letters: Box::new(letters) })
    }
}

/// The ends of a delivery, in the order of [`of_ends`].
const ENDS: [&str; 9] =
    ["acked", "skipped", "expired", "retried", "deferred", "dead_lettered", "given_back", "revoked", "unsettled"];

fn of_ends(counts: &ConsumerCounts) -> [u64; ENDS.len()] {
    [
        counts.acked,
        counts.skipped,
        counts.expired,
        counts.retried,
        counts.deferred,
        counts.dead_lettered,
        counts.given_back,
        counts.revoked,
        counts.unsettled,
    ]
}

struct ConsumerSource {
    group: String,
    counters: ConsumerCounters,
    ends: FollowedTotals<{ ENDS.len() }>,
    others: FollowedTotals<5>,
}

#[async_trait]
impl Source for ConsumerSource {
    fn name(&self) -> String {
        format!("consumer:{}", self.group)
    }

    async fn read(&mut self, recording: &Recording) -> bool {
        let (counts, gauges) = (self.counters.counts(), self.counters.gauges());
        self.ends.follow(of_ends(&counts));
        let others = [counts.pauses, counts.node_outages, counts.source_errors, counts.undecodable, counts.alerts];
        self.others.follow(others);
        let set = |metric, value: u64| recording.gauge(metric, &[&self.group]).set(value as f64);
        set(&catalogue::CONSUMER_HELD, gauges.held);
        set(&catalogue::CONSUMER_RUNNING, gauges.running);
        set(&catalogue::CONSUMER_CAPACITY, gauges.capacity);
        set(&catalogue::CONSUMER_PAUSED, u64::from(gauges.paused));
        set(&catalogue::CONSUMER_FAILED_NODES, gauges.failed_nodes);
        true
    }
}

struct DeadLetterSource {
    queue: String,
    letters: Box<dyn DeadLetters>,
}

#[async_trait]
impl Source for DeadLetterSource {
    fn name(&self) -> String {
        format!("dead_letters:{}", self.queue)
    }

    async fn read(&mut self, recording: &Recording) -> bool {
        let Ok(count) = self.letters.count().await else { return false };
        recording.gauge(&catalogue::DEAD_LETTERS, &[&self.queue]).set(count as f64);
        true
    }

    fn set_unknown(&self, recording: &Recording) {
        recording.gauge(&catalogue::DEAD_LETTERS, &[&self.queue]).set(f64::NAN);
    }
}

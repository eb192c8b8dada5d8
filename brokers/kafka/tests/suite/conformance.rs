//! The conformance laws of broker adapters, with both ways to retry.
mod topic;

use idempotent_testkit::broker_conformance;

use self::topic::Topic;

// A member that leaves its group returns all messages of a partition from the oldest unsettled one on, so it stays until all its
// deliveries are settled. `rebalances` has tests of this. Kafka has no limit for the time of a delivery. After a drain during an outage,
// the old member leaves while the next one joins: tansu 0.6.0 then names the old member as the leader of the group for good.
broker_conformance!(
    a_topic_keeps_the_laws,
    Topic::with_seek(),
    without: [
        a_drain_during_an_outage_ends_and_each_message_runs_once,
        an_extended_delivery_is_held_beyond_the_brokers_limit,
        a_late_settlement_brings_no_message_back,
        closing_returns_undelivered_messages,
    ]
);
broker_conformance!(
    a_topic_with_a_retry_topic_keeps_the_laws,
    Topic::with_retry_topic(),
    without: [
        a_drain_during_an_outage_ends_and_each_message_runs_once,
        an_extended_delivery_is_held_beyond_the_brokers_limit,
        a_late_settlement_brings_no_message_back,
        closing_returns_undelivered_messages,
    ]
);

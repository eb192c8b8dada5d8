//! The conformance laws of broker adapters, with both ways to retry.
mod topic;

use idempotent_testkit::broker_conformance;

use self::topic::Topic;

// A member that leaves its group returns all messages of a partition from the oldest unsettled one on, so it stays until all its
// deliveries are settled. `rebalances` has tests of this. Kafka has no limit for the time of a delivery.
broker_conformance!(
    a_topic_keeps_the_laws,
    Topic::with_seek(),
    without: [closing_returns_undelivered_messages, an_extended_delivery_is_held_beyond_the_brokers_limit]
);
broker_conformance!(
    a_topic_with_a_retry_topic_keeps_the_laws,
    Topic::with_retry_topic(),
    without: [closing_returns_undelivered_messages, an_extended_delivery_is_held_beyond_the_brokers_limit]
);

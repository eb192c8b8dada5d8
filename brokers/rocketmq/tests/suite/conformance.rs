//! The laws of adapters on a real broker.
mod rocket;

use idempotent_testkit::broker_conformance;

use self::rocket::Rocket;

broker_conformance!(
    a_topic_keeps_the_laws,
    Rocket::new(),
    without: [
        // The broker takes no messages back from a connected client.
        an_extended_delivery_is_held_beyond_the_brokers_limit,
        a_late_settlement_brings_no_message_back,
        // A client keeps its messages when it loses connections: the broker assigns queues to other members of the group,
        // not messages. See `broker::consumer_outages`.
        deliveries_of_a_cut_connection_are_redelivered,
        a_consumer_continues_after_its_connections_were_cut,
        a_drain_during_an_outage_ends_and_each_message_runs_once,
        a_run_that_ends_during_an_outage_is_not_repeated,
        // A queue is reassigned as a whole after all taken messages are settled. See `broker::closing`.
        closing_returns_undelivered_messages,
    ]
);

//! The laws of adapters on a real broker.
mod rocket;

use idempotent_testkit::broker_conformance;

use self::rocket::Rocket;

broker_conformance!(
    a_topic_keeps_the_laws,
    Rocket::new(),
    without: [
        // The broker takes no messages back from a connected client.
        what_is_kept_alive_is_held_beyond_the_brokers_limit,
        // A client keeps its messages when it loses connections: the broker assigns queues to other members of the group,
        // not messages. See `broker::consumer_outages`.
        what_was_held_comes_again_when_its_connection_is_cut,
        // A queue is reassigned as a whole after all taken messages are settled. See `broker::closing`.
        closing_hands_back_what_was_not_handed_over,
        // The client parses messages before the adapter receives them.
        an_unreadable_message_is_dead_lettered_and_blocks_nothing,
    ]
);

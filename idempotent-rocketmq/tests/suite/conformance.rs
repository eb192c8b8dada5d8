//! The laws of adapters, on a real RocketMQ.
mod rocket;

use idempotent_testkit::broker_conformance;

use self::rocket::Rocket;

broker_conformance!(
    a_topic_keeps_the_laws,
    Rocket::new(),
    without: [
        // Nothing is taken back from a client that is alive.
        what_is_kept_alive_is_held_beyond_the_brokers_limit,
        // A client keeps what it holds, whatever becomes of its connections: the broker gives a queue to another member
        // of the group, and not messages. See `broker::consumer_outages`.
        what_was_held_comes_again_when_its_connection_is_cut,
        // A queue goes to others as a whole, once all is settled that was taken from it. See `broker::closing`.
        closing_hands_back_what_was_not_handed_over,
        // The client parses messages, before the adapter sees them.
        an_unreadable_message_is_dead_lettered_and_blocks_nothing,
    ]
);

//! The laws for adapters, on a real RabbitMQ.
mod rabbit;

use idempotent_rabbitmq::Queue;
use idempotent_testkit::broker_conformance;

use self::rabbit::Rabbit;

// RabbitMQ has no limit on the time of a delivery that `keep_alive` would extend.
broker_conformance!(
    a_classic_queue_keeps_the_laws,
    Rabbit::new(Queue::classic),
    without: [
        an_extended_delivery_is_held_beyond_the_brokers_limit,
        a_late_settlement_brings_no_message_back,
    ]
);
broker_conformance!(
    a_quorum_queue_keeps_the_laws,
    Rabbit::new(Queue::quorum),
    without: [
        an_extended_delivery_is_held_beyond_the_brokers_limit,
        a_late_settlement_brings_no_message_back,
    ]
);

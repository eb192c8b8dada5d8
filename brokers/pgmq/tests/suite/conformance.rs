//! The conformance laws of broker adapters, on a real server.
mod queue;

use idempotent_testkit::broker_conformance;

use self::queue::Queue;

broker_conformance!(a_queue_keeps_the_laws, Queue::new());

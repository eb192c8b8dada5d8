//! The conformance laws of broker adapters, on a real server.
mod queue;

use idempotent_testkit::broker_conformance;

use self::queue::Queue;

broker_conformance!(a_queue_keeps_the_laws, Queue::new());

mod extras {
    use super::*;

    broker_conformance!(a_queue_of_an_old_version_keeps_the_laws, Queue::old());
}

//! The conformance laws of broker adapters, on an emulator.
mod queue;

use idempotent_testkit::broker_conformance;

use self::queue::Queue;

broker_conformance!(a_standard_queue_keeps_the_laws, Queue::standard());
broker_conformance!(a_fifo_queue_keeps_the_laws, Queue::fifo());

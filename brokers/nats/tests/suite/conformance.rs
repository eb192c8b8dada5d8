//! The conformance laws of broker adapters, on a real NATS server.
mod stream;

use idempotent_testkit::broker_conformance;

use self::stream::JetStream;

broker_conformance!(a_stream_keeps_the_laws, JetStream::new());

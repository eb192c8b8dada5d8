//! The conformance laws of broker adapters, on a real Redis server.
mod streams;

use idempotent_redis_streams::TrimPolicy;
use idempotent_testkit::broker_conformance;

use self::streams::Streams;

broker_conformance!(a_stream_that_keeps_everything_keeps_the_laws, Streams::new(TrimPolicy::Everything));
broker_conformance!(a_stream_that_deletes_what_is_settled_keeps_the_laws, Streams::new(TrimPolicy::Unacknowledged));

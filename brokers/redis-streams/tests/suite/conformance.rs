//! The conformance laws of broker adapters, on a real Redis server.
mod streams;

use idempotent_redis_streams::TrimPolicy;
use idempotent_testkit::broker_conformance;

use self::streams::Streams;

// An entry cannot store the attempt.
broker_conformance!(
    a_stream_that_keeps_everything_keeps_the_laws,
    Streams::new(TrimPolicy::Everything),
    without: [
        a_postponed_delivery_is_the_same_attempt,
        a_retry_leaves_attempt_and_first_seen,
        the_attempts_of_a_retry_survive_a_return,
    ]
);
broker_conformance!(
    a_stream_that_deletes_what_is_settled_keeps_the_laws,
    Streams::new(TrimPolicy::Unacknowledged),
    without: [
        a_postponed_delivery_is_the_same_attempt,
        a_retry_leaves_attempt_and_first_seen,
        the_attempts_of_a_retry_survive_a_return,
    ]
);

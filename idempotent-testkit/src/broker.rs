//! The laws for adapters of the consumer runtime. [`broker_conformance!`](crate::broker_conformance!) creates one named
//! test for each law.
//!
//! The subject is a [`Broker`], which the tests of an adapter implement. It creates sources of a private queue, and
//! inspects that queue from outside. The laws act as a consumer themselves, or run one. They check the guarantees of
//! [`idempotent_mq::docs::source`]; the numbers in the table refer to the table there.
//!
//! | about | laws |
//! |---|---|
//! | 1, 3: nothing is lost | `an_unsettled_delivery_is_redelivered_after_the_end_of_its_consumer`, `a_delivery_dropped_unsettled_is_redelivered`, `deliveries_of_a_cut_connection_are_redelivered` |
//! | acknowledging | `an_acknowledged_delivery_is_never_redelivered` |
//! | 2, 4: deliveries | `a_body_arrives_unchanged`, `headers_arrive_unchanged`, `repeated_headers_arrive_in_order` |
//! | 4: copies | `a_retry_keeps_id_body_and_headers_byte_for_byte`, `a_dead_letter_keeps_id_body_and_headers_byte_for_byte` |
//! | 5: attempts | `a_retry_leaves_attempt_and_first_seen`, `a_postponed_delivery_is_the_same_attempt` |
//! | 6: dead letters | `a_dead_letter_states_reason_time_and_attempts`, `a_redriven_dead_letter_is_a_first_attempt_with_its_history`, `a_discarded_dead_letter_never_returns`, `two_redrives_at_once_put_each_letter_back_once`, `letters_that_were_read_are_there_after_their_handle_is_closed` |
//! | own data of producers | `what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message` |
//! | 12: unreadable messages | `an_unreadable_message_is_dead_lettered_and_blocks_nothing` |
//! | delays | `a_retry_is_delivered_after_its_delay_and_never_before` |
//! | returning deliveries | `a_returned_delivery_is_redelivered_unchanged`, `the_attempts_of_a_retry_survive_a_return`, `closing_returns_undelivered_messages` |
//! | 7: receiving | `a_dropped_receive_loses_no_delivery`, `a_receive_returns_at_most_the_requested_number` |
//! | 8, 9: settling | `deliveries_are_settled_in_any_order`, `deliveries_are_settled_concurrently`, `settling_twice_has_one_effect`, `settling_after_the_end_of_the_consumer_is_done_or_refused` |
//! | 10: keeping alive | `an_extended_delivery_is_held_beyond_the_brokers_limit`, `a_late_settlement_brings_no_message_back` |
//! | with a [`Consumer`](idempotent_mq::Consumer) | `copies_of_one_message_run_once`, `messages_of_one_key_run_in_order`, `a_stopping_consumer_returns_waiting_deliveries`, `a_consumer_continues_after_its_connections_were_cut`, `a_run_that_ends_during_an_outage_is_not_repeated`, `a_drain_during_an_outage_ends_and_each_message_runs_once`, `a_duplicate_in_flight_is_deferred_and_acknowledged_after_the_run`, `an_undecodable_body_is_dead_lettered_unchanged_without_a_run`, `a_message_that_always_fails_is_dead_lettered_after_its_attempts` |
//!
//! The laws do not cover a lost publisher confirm, a deleted queue, denied permissions, or two processes. An adapter
//! needs its own tests for these.
mod hand;
pub mod laws;
mod list;
pub mod testing;

use std::future::IntoFuture;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{DeadLetter, DeadLetters, DelaySupport, Headers, Source};

pub use self::list::{Law, all};
use crate::conformance::{Threads, limit};

/// An adapter, and an outside view of its broker: one private queue, declared and empty.
///
/// A method for a feature that the broker lacks is excluded by `without:` and may panic. A method that fails panics,
/// because it is a part of a test.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// The source of the adapter.
    type Source: Source;

    /// Returns the limits of this broker.
    fn limits(&self) -> Limits;

    /// Creates a new consumer of the queue with its own connection, like another process.
    async fn source(&self) -> Self::Source;

    /// Publishes a message to the queue, like a producer. The broker has the message when this method returns.
    async fn publish(&self, message: Message);

    /// Publishes a message that the adapter cannot parse, such as a record with a damaged header. Use the worst message
    /// that the broker accepts.
    ///
    /// # Default
    /// Panics. Leave out the law `an_unreadable_message_is_dead_lettered_and_blocks_nothing` if the adapter
    /// can parse each message that its broker accepts.
    #[allow(clippy::panic, reason = "a part of a test")]
    async fn publish_unreadable(&self) {
        panic!(
            "`publish_unreadable` is not implemented: implement it, or leave out the law \
             `an_unreadable_message_is_dead_lettered_and_blocks_nothing` by `without:`"
        )
    }

    /// Publishes a message with the id `forged` and with all data that the adapter writes to retries and dead letters, in its
    /// names and forms: an attempt of 70, a due time in the far future, another queue, and a dead letter with its reason, its
    /// first time and its deaths.
    ///
    /// # Default
    /// Panics. Leave out the law `what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message` if
    /// producers can send by the adapter only.
    #[allow(clippy::panic, reason = "a part of a test")]
    async fn publish_forged(&self) {
        panic!(
            "`publish_forged` is not implemented: implement it, or leave out the law \
             `what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message` by `without:`"
        )
    }

    /// Returns all dead letters that were neither put back nor removed, in any order: id, body and headers without
    /// the adapter's marks, and the content of these marks.
    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)>;

    /// Returns a new handle to the dead letters, like that of an operator in another process.
    ///
    /// # Default
    /// Panics. Leave out the laws about letters that are put back, read or removed if the adapter has no [`DeadLetters`].
    #[allow(clippy::panic, reason = "a part of a test")]
    fn letters(&self) -> Box<dyn DeadLetters> {
        panic!(
            "`letters` is not implemented: implement it, or leave out the laws about putting letters back by `without:`"
        )
    }

    /// Returns whether the queue is empty: no message is ready, delayed or held by a consumer. Dead letters do not
    /// count. The laws call this method repeatedly, also while consumers hold messages.
    async fn is_empty(&self) -> bool;

    /// Cuts the connections of all existing sources. New connections are accepted.
    async fn cut(&self);

    /// Begins an outage for all existing and new sources. During it, the laws neither publish nor inspect the queue.
    ///
    /// # Default
    /// Panics. Leave out the laws `a_run_that_ends_during_an_outage_is_not_repeated` and
    /// `a_drain_during_an_outage_ends_and_each_message_runs_once` if sources reach the broker at any time, such as a
    /// queue in memory.
    #[allow(clippy::panic, reason = "a part of a test")]
    async fn begin_outage(&self, _outage: Outage) {
        panic!(
            "`begin_outage` is not implemented: implement it, or leave out the laws \
             `a_run_that_ends_during_an_outage_is_not_repeated` and \
             `a_drain_during_an_outage_ends_and_each_message_runs_once` by `without:`"
        )
    }

    /// Ends the outage. Connections that have lost bytes end, so that their clients open new ones.
    ///
    /// # Default
    /// Panics, like [`begin_outage`](Self::begin_outage).
    #[allow(clippy::panic, reason = "a part of a test")]
    async fn end_outage(&self) {
        panic!("`end_outage` is not implemented: implement it together with `begin_outage`")
    }
}

/// A way in which a broker is away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Outage {
    /// All connections end, and new ones are refused.
    Refused,
    /// Connections stay open and new ones are accepted, but nothing passes.
    Silent,
}

/// A message of a producer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Message {
    /// The id that [`Delivery::id`](idempotent_mq::Delivery::id) returns. If the broker stores the id in a header, a
    /// delivery may also show it there.
    pub id: String,
    /// The payload.
    pub body: Vec<u8>,
    /// The headers, in order. The broker may reorder different names, but not the values of one name.
    pub headers: Headers,
}

impl Message {
    /// Creates a message with this id and body.
    #[must_use]
    pub fn new(id: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { id: id.into(), body: body.into(), headers: Headers::default() }
    }

    /// Appends a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }
}

/// The limits and features of a broker that the laws rely on.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct Limits {
    /// The delay that the laws request.
    ///
    /// # Default
    /// 300 ms
    pub delay: Duration,
    /// The time by which a retry may be early because the broker rounds its clock.
    ///
    /// # Default
    /// 0 s
    pub early: Duration,
    /// The time limit for operations that should take a moment, including a delay. It is a last resort and not a
    /// measure of speed.
    ///
    /// # Default
    /// 60 s
    pub patience: Duration,
    /// The time after which the broker takes back a delivery that is not kept alive. Required if the source needs to be
    /// [kept alive](idempotent_mq::SourceCapabilities::keep_alive): set a short time for these tests.
    ///
    /// # Default
    /// `None`
    pub held_for: Option<Duration>,
    /// The length in bytes of the longest body that the laws send.
    ///
    /// # Default
    /// 1 MiB
    pub longest_body: usize,
    /// True if a held delivery stays held when its connection is cut, because the hold depends on a time and not on the
    /// connection. Another connection can then settle it.
    ///
    /// # Default
    /// `false`: the delivery returns to the broker at once
    pub stays_held: bool,
}

impl Default for Limits {
    fn default() -> Self {
        let (delay, patience) = (Duration::from_millis(300), Duration::from_secs(60));
        let longest_body = 1 << 20;
        Self { delay, early: Duration::ZERO, patience, held_for: None, longest_body, stays_held: false }
    }
}

/// Checks one law with a new broker, on a separate runtime. [`broker_conformance!`](crate::broker_conformance!) does
/// this for all laws.
///
/// `build` is called inside the runtime, and returns a future of a [`Broker`].
///
/// # Panics
/// If the law is broken, or has not ended after 300 s. `IDEMPOTENT_KIT_LIMIT` sets another limit, in seconds.
pub fn hold<F>(name: &str, build: impl FnOnce() -> F, law: impl AsyncFnOnce(&F::Output))
where
    F: IntoFuture<Output: Broker>,
{
    limit::run(name, Threads::One, Box::pin(async { law(&build().await).await }));
}

/// Checks that the capabilities of the source do not include a feature in `without:`.
#[doc(hidden)]
pub fn not_claimed<F>(build: impl FnOnce() -> F, without: &[&str])
where
    F: IntoFuture<Output: Broker>,
{
    let law = async {
        let capabilities = build().await.source().await.capabilities();
        let claimed = |law: &str| match law {
            "an_extended_delivery_is_held_beyond_the_brokers_limit" | "a_late_settlement_brings_no_message_back" => {
                capabilities.keep_alive.is_some()
            }
            "a_retry_is_delivered_after_its_delay_and_never_before" => capabilities.delays != DelaySupport::ByBroker,
            _ => false,
        };
        let claimed: Vec<_> = without.iter().filter(|law| claimed(law)).collect();
        assert!(claimed.is_empty(), "left out by `without`, and yet among the source's capabilities: {claimed:?}");
    };
    limit::run("an_excluded_law_is_not_required", Threads::One, Box::pin(law));
}

/// Creates a module of named tests for an adapter, one for each law of [`broker`](crate::broker).
///
/// The expression is evaluated for each test, inside a tokio runtime, and returns a future of a
/// [`Broker`](crate::broker::Broker) with an empty queue. tokio's macros are not needed.
///
/// `without:` leaves out laws by name. The test run lists them as `ignored, not shown: left out`. Leaving out a law
/// that the capabilities of the source promise is a failure, and an unknown name is a compile error.
///
/// In a test of an adapter:
///
/// ```text
/// broker_conformance!(my_broker, subject(), without: [
///     an_extended_delivery_is_held_beyond_the_brokers_limit, a_late_settlement_brings_no_message_back,
/// ]);
/// ```
#[macro_export]
macro_rules! broker_conformance {
    ($name:ident, $builder:expr $(,)?) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::__broker_law_tests! { [$builder] [] }
        }
    };
    ($name:ident, $builder:expr, without: [$($without:ident),+ $(,)?] $(,)?) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            // An unknown name is an error in every build.
            #[allow(unused_imports)]
            use $crate::broker::laws::{$($without as _),+};
            $crate::__broker_law_tests! { [$builder] [$($without)+] }
            #[test]
            fn an_excluded_law_is_not_required() {
                $crate::broker::not_claimed(|| $builder, &[$(stringify!($without)),+]);
            }
        }
    };
}

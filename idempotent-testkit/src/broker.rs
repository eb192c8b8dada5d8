//! The laws every adapter of the consumer runtime has to keep, as named tests made by one line:
//! [`broker_conformance!`](crate::broker_conformance!).
//!
//! The subject is a [`Broker`], written in the adapter's tests: it makes sources of a queue of its own, and looks at
//! that queue from beside. The laws play the consumer by hand, or run one. What they hold an adapter to are the
//! promises of [`idempotent_mq::docs::source`]; the numbers are those of its table.
//!
//! | about | laws |
//! |---|---|
//! | 1, 3: nothing is lost | `an_unsettled_delivery_comes_again_once_its_consumer_is_gone`, `what_is_dropped_unsettled_comes_again`, `what_was_held_comes_again_when_its_connection_is_cut` |
//! | acknowledging | `an_acknowledged_delivery_never_comes_again` |
//! | 2, 4: what comes | `any_body_comes_as_it_was_sent`, `headers_come_as_they_were_sent`, `repeated_headers_come_in_their_order` |
//! | 4: copies | `a_retry_keeps_id_body_and_headers_byte_for_byte`, `a_dead_letter_keeps_id_body_and_headers_byte_for_byte` |
//! | 5: attempts | `a_retry_leaves_attempt_and_first_seen`, `a_delivery_put_off_is_the_same_attempt` |
//! | 6: dead letters | `a_dead_letter_says_why_when_and_how_often`, `a_dead_letter_put_back_is_a_first_attempt_that_has_died` |
//! | 12: unreadable messages | `an_unreadable_message_is_dead_lettered_and_blocks_nothing` |
//! | delays | `a_retry_comes_not_before_its_delay_and_then_does` |
//! | giving back | `a_delivery_given_back_comes_again_as_it_was`, `what_a_retry_left_outlasts_giving_back`, `closing_hands_back_what_was_not_handed_over` |
//! | 7: receiving | `a_receive_that_is_dropped_loses_nothing`, `a_receive_brings_at_most_its_room` |
//! | 8, 9: settling | `deliveries_are_settled_in_any_order`, `deliveries_are_settled_side_by_side`, `settling_twice_has_one_effect`, `settling_behind_the_consumers_end_is_done_or_refused` |
//! | 10: keeping alive | `what_is_kept_alive_is_held_beyond_the_brokers_limit` |
//! | with a [`Consumer`](idempotent_mq::Consumer) | `copies_of_one_message_run_once`, `messages_of_one_key_run_in_their_order`, `a_consumer_that_stops_gives_back_what_waits` |
//!
//! Out of their sight: a publisher confirm that is lost, a queue that is deleted, refused rights, two processes. Those
//! want tests of the adapter's own.
mod hand;
pub mod laws;
mod list;

use std::future::IntoFuture;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{DeadLetter, DelaySupport, Headers, Source};

pub use self::list::{Law, all};
use crate::conformance::{Threads, limit};

/// An adapter, and its broker seen from beside: one queue that nobody else uses, empty and declared.
///
/// What the broker cannot do is left out by `without:` and may panic here. A method that fails panics: it is part of a
/// test.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// The adapter's source.
    type Source: Source;

    /// What the laws may expect of this broker.
    fn limits(&self) -> Limits;

    /// A new consumer of the queue, as of another process: with a connection of its own.
    async fn source(&self) -> Self::Source;

    /// Puts a message into the queue as a producer does. The broker has it when this returns.
    async fn publish(&self, message: Message);

    /// Puts a message into the queue that the adapter cannot parse, such as a record with a damaged header. Use the worst
    /// message that the broker accepts.
    ///
    /// # Default
    /// Panics: leave out the law `an_unreadable_message_is_dead_lettered_and_blocks_nothing` if the adapter can parse each
    /// message that its broker accepts.
    #[allow(clippy::panic, reason = "a part of a test")]
    async fn publish_unreadable(&self) {
        panic!(
            "`publish_unreadable` is not implemented: implement it, or leave out the law \
             `an_unreadable_message_is_dead_lettered_and_blocks_nothing` by `without:`"
        )
    }

    /// All that has been put aside and not [put back](Self::put_back), in any order: id, body and headers without the
    /// adapter's marks, and what these marks say.
    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)>;

    /// Puts all dead letters back into the queue as an operator does: as they are, marks included.
    async fn put_back(&self);

    /// Whether nothing is in the queue: ready, delayed or held by a consumer. Dead letters do not count. Asked again and
    /// again, beside consumers that hold something.
    async fn is_empty(&self) -> bool;

    /// Cuts the connections of all sources there are. New ones are welcome.
    async fn cut(&self);
}

/// A message, as a producer makes it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Message {
    /// To be read back into [`Delivery::id`](idempotent_mq::Delivery::id). Where the broker keeps it in a header, a
    /// delivery may show it there, too.
    pub id: String,
    /// The payload.
    pub body: Vec<u8>,
    /// In order. The order of different names is the broker's; that of one name's values is not.
    pub headers: Headers,
}

impl Message {
    /// A message with this id and body.
    #[must_use]
    pub fn new(id: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { id: id.into(), body: body.into(), headers: Headers::default() }
    }

    /// Adds a header behind those there are.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }
}

/// What the laws may expect of a broker.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct Limits {
    /// The delay that laws ask for.
    ///
    /// # Default
    /// 300 ms
    pub delay: Duration,
    /// How much earlier than asked for a retry may come: what the broker's clock is rounded to.
    ///
    /// # Default
    /// 0 s
    pub early: Duration,
    /// For what should take a moment, a delay included. A last resort, no measure of speed.
    ///
    /// # Default
    /// 60 s
    pub patience: Duration,
    /// The time after which the broker takes back what is not kept alive. Needed where the source wants to be
    /// [kept alive](idempotent_mq::SourceCapabilities::keep_alive): set it low for these tests.
    ///
    /// # Default
    /// `None`
    pub held_for: Option<Duration>,
    /// Whether what is held stays so when its connection is cut, because it is held for a time and not by a connection.
    /// It is then settled by another connection.
    ///
    /// # Default
    /// `false`: it is the broker's again at once
    pub stays_held: bool,
}

impl Default for Limits {
    fn default() -> Self {
        let (delay, patience) = (Duration::from_millis(300), Duration::from_secs(60));
        Self { delay, early: Duration::ZERO, patience, held_for: None, stays_held: false }
    }
}

/// Holds one law against a freshly built broker, on a runtime of its own.
/// [`broker_conformance!`](crate::broker_conformance!) does this for all of them.
///
/// `build` is called inside the runtime. What it gives is a future of a [`Broker`].
///
/// # Panics
/// If the law is broken, or has not ended after 300 s; `IDEMPOTENT_KIT_LIMIT` sets another limit, in seconds.
pub fn hold<F>(name: &str, build: impl FnOnce() -> F, law: impl AsyncFnOnce(&F::Output))
where
    F: IntoFuture<Output: Broker>,
{
    limit::run(name, Threads::One, Box::pin(async { law(&build().await).await }));
}

/// Behind `without:`.
#[doc(hidden)]
pub fn not_claimed<F>(build: impl FnOnce() -> F, without: &[&str])
where
    F: IntoFuture<Output: Broker>,
{
    let law = async {
        let capabilities = build().await.source().await.capabilities();
        let claimed = |law: &str| match law {
            "what_is_kept_alive_is_held_beyond_the_brokers_limit" => capabilities.keep_alive.is_some(),
            "a_retry_comes_not_before_its_delay_and_then_does" => capabilities.delays != DelaySupport::ByBroker,
            _ => false,
        };
        let claimed: Vec<_> = without.iter().filter(|law| claimed(law)).collect();
        assert!(claimed.is_empty(), "left out by `without`, and yet among the source's capabilities: {claimed:?}");
    };
    limit::run("what_is_left_out_is_not_claimed", Threads::One, Box::pin(law));
}

/// One line makes a module of named tests, one for each law of [`broker`](crate::broker), over an adapter of yours.
///
/// The expression is evaluated anew for each test, inside a tokio runtime, and gives a future of a
/// [`Broker`](crate::broker::Broker) with a fresh queue. tokio's macros are not needed.
///
/// What the broker cannot show is left out by the law's name. It is listed by the test run as `ignored, not shown: left
/// out`; what is left out though the source's capabilities claim it is a failure. A name that is no law does not compile.
///
/// In a test of an adapter:
///
/// ```text
/// broker_conformance!(my_broker, subject(), without: [what_is_kept_alive_is_held_beyond_the_brokers_limit]);
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
            // A name that is none is found in any build.
            #[allow(unused_imports)]
            use $crate::broker::laws::{$($without as _),+};
            $crate::__broker_law_tests! { [$builder] [$($without)+] }
            #[test]
            fn what_is_left_out_is_not_claimed() {
                $crate::broker::not_claimed(|| $builder, &[$(stringify!($without)),+]);
            }
        }
    };
}

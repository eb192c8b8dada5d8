//! The list of laws by name, for `broker_conformance!` and for custom runners.
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use super::{Broker, hold, laws};

/// One law of an adapter.
pub struct Law<B> {
    name: &'static str,
    body: for<'a> fn(&'a B) -> Body<'a>,
}

type Body<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl<B: Broker> Law<B> {
    /// Returns the name of the law: a statement that can be false.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Checks the law with a new broker, on a separate runtime.
    ///
    /// # Panics
    /// If the law is broken or does not end.
    pub fn hold<F: IntoFuture<Output = B>>(&self, build: impl FnOnce() -> F) {
        hold(self.name, build, async |broker: &B| (self.body)(broker).await);
    }
}

impl<B> fmt::Debug for Law<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Law").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Defines the list. The first argument is a dollar sign, for variables of the macros that this macro defines. A macro
/// that compares two names needs an arm for each of them.
macro_rules! laws {
    ($d:tt $($law:ident)+) => {
        /// Returns all laws, in the order of [`broker_conformance!`](crate::broker_conformance!), for a custom runner.
        #[must_use]
        pub fn all<B: Broker>() -> Vec<Law<B>> {
            vec![$(Law { name: stringify!($law), body: |broker| Box::pin(laws::$law(broker)) }),+]
        }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! __broker_law_tests {
            ($d builder:tt $d without:tt) => {
                $($crate::__broker_law_test! { $law $d without $d builder })+
            };
        }

        /// Expands to `#[test]`, or to `#[test] #[ignore = …]` if the law is left out.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! __broker_law_test {
            $(($law [$law $d ($d more:ident)*] [$d builder:expr]) => {
                #[test]
                #[ignore = "not shown: left out"]
                fn $law() {
                    $crate::broker::hold(
                        stringify!($law), || $d builder, async |broker: &_| $crate::broker::laws::$law(broker).await,
                    );
                }
            };)+
            ($d law:ident [$d other:ident $d ($d more:ident)*] $d builder:tt) => {
                $crate::__broker_law_test! { $d law [$d ($d more)*] $d builder }
            };
            ($d law:ident [] [$d builder:expr]) => {
                #[test]
                fn $d law() {
                    $crate::broker::hold(
                        stringify!($d law), || $d builder, async |broker: &_| $crate::broker::laws::$d law(broker).await,
                    );
                }
            };
        }
    };
}

laws! { $
    an_acknowledged_delivery_never_comes_again
    an_unsettled_delivery_comes_again_once_its_consumer_is_gone
    what_is_dropped_unsettled_comes_again
    what_was_held_comes_again_when_its_connection_is_cut
    any_body_comes_as_it_was_sent
    headers_come_as_they_were_sent
    repeated_headers_come_in_their_order
    a_retry_comes_not_before_its_delay_and_then_does
    a_retry_leaves_attempt_and_first_seen
    a_retry_keeps_id_body_and_headers_byte_for_byte
    a_delivery_put_off_is_the_same_attempt
    a_dead_letter_keeps_id_body_and_headers_byte_for_byte
    a_dead_letter_says_why_when_and_how_often
    a_dead_letter_put_back_is_a_first_attempt_that_has_died
    an_unreadable_message_is_dead_lettered_and_blocks_nothing
    a_delivery_given_back_comes_again_as_it_was
    what_a_retry_left_outlasts_giving_back
    closing_hands_back_what_was_not_handed_over
    a_receive_that_is_dropped_loses_nothing
    a_receive_brings_at_most_its_room
    deliveries_are_settled_in_any_order
    deliveries_are_settled_side_by_side
    settling_twice_has_one_effect
    settling_behind_the_consumers_end_is_done_or_refused
    what_is_kept_alive_is_held_beyond_the_brokers_limit
    copies_of_one_message_run_once
    messages_of_one_key_run_in_their_order
    a_consumer_that_stops_gives_back_what_waits
}

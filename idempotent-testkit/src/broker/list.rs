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
    an_acknowledged_delivery_is_never_redelivered
    an_unsettled_delivery_is_redelivered_after_the_end_of_its_consumer
    a_delivery_dropped_unsettled_is_redelivered
    deliveries_of_a_cut_connection_are_redelivered
    a_body_arrives_unchanged
    headers_arrive_unchanged
    repeated_headers_arrive_in_order
    a_retry_is_delivered_after_its_delay_and_never_before
    a_retry_leaves_attempt_and_first_seen
    a_retry_keeps_id_body_and_headers_byte_for_byte
    a_postponed_delivery_is_the_same_attempt
    a_dead_letter_keeps_id_body_and_headers_byte_for_byte
    a_dead_letter_states_reason_time_and_attempts
    a_redriven_dead_letter_is_a_first_attempt_with_its_history
    a_discarded_dead_letter_never_returns
    two_redrives_at_once_put_each_letter_back_once
    letters_that_were_read_are_there_after_their_handle_is_closed
    what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message
    an_unreadable_message_is_dead_lettered_and_blocks_nothing
    a_returned_delivery_is_redelivered_unchanged
    the_attempts_of_a_retry_survive_a_return
    closing_returns_undelivered_messages
    a_dropped_receive_loses_no_delivery
    a_receive_returns_at_most_the_requested_number
    deliveries_are_settled_in_any_order
    deliveries_are_settled_concurrently
    settling_twice_has_one_effect
    settling_after_the_end_of_the_consumer_is_done_or_refused
    an_extended_delivery_is_held_beyond_the_brokers_limit
    a_late_settlement_brings_no_message_back
    copies_of_one_message_run_once
    messages_of_one_key_run_in_order
    a_stopping_consumer_returns_waiting_deliveries
    a_consumer_continues_after_its_connections_were_cut
    a_run_that_ends_during_an_outage_is_not_repeated
    a_drain_during_an_outage_ends_and_each_message_runs_once
    a_duplicate_in_flight_is_deferred_and_acknowledged_after_the_run
    an_undecodable_body_is_dead_lettered_unchanged_without_a_run
    a_message_that_always_fails_is_dead_lettered_after_its_attempts
}

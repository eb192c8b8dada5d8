//! The laws, one function each. The name states the law, and a panic reports a violation. The table of
//! [`broker`](super) groups them by subject.
#![allow(
    missing_docs,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "law bodies are test code, and the name of a law is its documentation"
)]
mod consumer;
mod dead_letters;
mod deliveries;
mod ends;
mod retries;
mod settling;

pub use self::consumer::{
    a_consumer_continues_after_its_connections_were_cut, a_drain_during_an_outage_ends_and_each_message_runs_once,
    a_duplicate_in_flight_is_deferred_and_acknowledged_after_the_run,
    a_message_that_always_fails_is_dead_lettered_after_its_attempts, a_run_that_ends_during_an_outage_is_not_repeated,
    a_stopping_consumer_returns_waiting_deliveries, an_undecodable_body_is_dead_lettered_unchanged_without_a_run,
    copies_of_one_message_run_once, messages_of_one_key_run_in_order,
};
pub use self::dead_letters::{
    a_dead_letter_keeps_id_body_and_headers_byte_for_byte, a_dead_letter_states_reason_time_and_attempts,
    a_discarded_dead_letter_never_returns, a_redriven_dead_letter_is_a_first_attempt_with_its_history,
    an_unreadable_message_is_dead_lettered_and_blocks_nothing,
    letters_that_were_read_are_there_after_their_handle_is_closed, two_redrives_at_once_put_each_letter_back_once,
    what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message,
};
pub use self::deliveries::{
    a_body_arrives_unchanged, a_receive_returns_at_most_the_requested_number,
    an_acknowledged_delivery_is_never_redelivered, headers_arrive_unchanged, repeated_headers_arrive_in_order,
};
pub use self::ends::{
    a_delivery_dropped_unsettled_is_redelivered, a_dropped_receive_loses_no_delivery,
    an_unsettled_delivery_is_redelivered_after_the_end_of_its_consumer, closing_returns_undelivered_messages,
    deliveries_of_a_cut_connection_are_redelivered, settling_after_the_end_of_the_consumer_is_done_or_refused,
};
pub use self::retries::{
    a_postponed_delivery_is_the_same_attempt, a_retry_is_delivered_after_its_delay_and_never_before,
    a_retry_keeps_id_body_and_headers_byte_for_byte, a_retry_leaves_attempt_and_first_seen,
    a_returned_delivery_is_redelivered_unchanged, the_attempts_of_a_retry_survive_a_return,
};
pub use self::settling::{
    a_late_settlement_brings_no_message_back, an_extended_delivery_is_held_beyond_the_brokers_limit,
    deliveries_are_settled_concurrently, deliveries_are_settled_in_any_order, settling_twice_has_one_effect,
};

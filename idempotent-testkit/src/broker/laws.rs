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
    a_consumer_that_stops_gives_back_what_waits, copies_of_one_message_run_once, messages_of_one_key_run_in_their_order,
};
pub use self::dead_letters::{
    a_dead_letter_keeps_id_body_and_headers_byte_for_byte, a_dead_letter_put_back_is_a_first_attempt_that_has_died,
    a_dead_letter_says_why_when_and_how_often, an_unreadable_message_is_dead_lettered_and_blocks_nothing,
};
pub use self::deliveries::{
    a_receive_brings_at_most_its_room, an_acknowledged_delivery_never_comes_again, any_body_comes_as_it_was_sent,
    headers_come_as_they_were_sent, repeated_headers_come_in_their_order,
};
pub use self::ends::{
    a_receive_that_is_dropped_loses_nothing, an_unsettled_delivery_comes_again_once_its_consumer_is_gone,
    closing_hands_back_what_was_not_handed_over, settling_behind_the_consumers_end_is_done_or_refused,
    what_is_dropped_unsettled_comes_again, what_was_held_comes_again_when_its_connection_is_cut,
};
pub use self::retries::{
    a_delivery_given_back_comes_again_as_it_was, a_delivery_put_off_is_the_same_attempt,
    a_retry_comes_not_before_its_delay_and_then_does, a_retry_keeps_id_body_and_headers_byte_for_byte,
    a_retry_leaves_attempt_and_first_seen, what_a_retry_left_outlasts_giving_back,
};
pub use self::settling::{
    deliveries_are_settled_in_any_order, deliveries_are_settled_side_by_side, settling_twice_has_one_effect,
    what_is_kept_alive_is_held_beyond_the_brokers_limit,
};

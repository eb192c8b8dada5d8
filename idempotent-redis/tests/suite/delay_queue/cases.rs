//! The list of cases, and how one is played.
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::delay_queue::world::{Place, World};
use crate::delay_queue::{commit_and_take, dead_letters, message_kinds, redelivery, waiting};

pub(crate) type Case = for<'w> fn(&'w World) -> Pin<Box<dyn Future<Output = ()> + 'w>>;

pub(crate) fn play(case: Case, place: &Arc<Place>, edit: impl Fn(&str) -> String + Send + Sync + 'static) {
    let world = World::new(place.clone(), edit);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let played = tokio::time::timeout(std::time::Duration::from_secs(120), case(&world)).await;
        played.expect("it has not ended");
    });
}

/// The slow ones last.
macro_rules! each_case {
    ($then:ident) => {
        $then! {
            message_kinds::b30_s4_2_a_duplicate_within_the_interval_merges_and_keeps_the_first_time
            message_kinds::b30_m6a_one_sent_while_the_first_is_in_flight_is_a_delivery_of_its_own
            message_kinds::b31_s4_3_larger_priorities_come_first_and_equal_ones_in_the_order_they_were_sent
            message_kinds::b31_s4_12_the_same_body_twice_is_two_messages
            message_kinds::s4_11_of_one_time_the_first_sent_comes_first
            message_kinds::b31_those_that_come_back_rank_behind_all_new_ones
            message_kinds::b32_s4_4_a_fixed_time_is_due_only_when_it_is_past
            message_kinds::b31_b32_s4_what_cannot_be_is_refused_by_name_with_the_rule_and_the_remedy
            message_kinds::a_delay_is_counted_from_when_the_server_has_it
            message_kinds::work_is_scheduled_once_by_its_key_until_it_is_settled_or_called_off
            message_kinds::a_delay_that_was_scheduled_tells_its_time_whatever_kind_holds_its_key
            message_kinds::a_message_is_called_off_by_the_id_it_was_given_by_the_server
            redelivery::s4_6_what_is_taken_is_held_until_it_is_committed
            redelivery::b33_m6c_s4_7_s4_8_what_nobody_settles_comes_again_at_the_timeout_and_not_before
            redelivery::s4_8_who_lost_a_message_can_do_nothing_to_its_next_delivery
            redelivery::s4_8_a_message_that_was_put_back_cannot_be_settled_by_who_put_it_back
            redelivery::a_sources_retry_leaves_its_marks_and_ranks_behind_new_ones
            redelivery::n142_a_retry_may_be_put_off_for_any_time
            redelivery::s4_8_a_source_that_lost_a_message_cannot_bury_it
            redelivery::what_is_late_and_nobody_elses_is_still_its_takers
            redelivery::what_is_extended_is_held_from_then_on
            redelivery::d8_a_rollback_has_a_real_backoff
            redelivery::s4_9_d8_in_the_compatible_mode_a_retry_ranks_by_the_retries_that_are_left
            redelivery::b33_d7_sixteen_retries_are_seventeen_deliveries_and_then_it_is_dead
            redelivery::b33_s4_8_deliveries_that_nobody_settles_are_counted_and_end_among_the_dead
            redelivery::b33_m6b_sending_again_does_not_reset_the_counter
            redelivery::a_batch_is_committed_in_one_step_and_each_has_its_own_answer
            redelivery::one_whose_body_is_gone_is_passed_over
            redelivery::n143_what_cannot_be_read_is_put_aside_with_its_bytes
            dead_letters::dead_letters_are_listed_oldest_first_and_put_back_as_first_attempts_that_have_died
            dead_letters::dead_letters_are_told_in_the_order_they_died_and_cannot_be_called_off
            dead_letters::what_dies_again_has_died_twice
            dead_letters::a_message_that_was_buried_frees_its_id_and_keeps_another_ones
            dead_letters::dead_letters_are_removed_oldest_first_and_no_more_than_asked_for
            dead_letters::counts_say_what_is_ready_waiting_in_flight_and_dead_and_for_how_long
            dead_letters::of_several_priorities_and_times_the_oldest_is_told
            dead_letters::a_topic_is_purged_whole_and_its_numbers_go_on
            dead_letters::no_number_is_given_twice_when_the_clock_stands_still_or_goes_back
            commit_and_take::s4_6_what_is_done_is_committed_and_the_next_is_taken_by_one_step
            commit_and_take::s4_8_a_commit_that_comes_too_late_is_lost_and_the_next_are_taken_all_the_same
            commit_and_take::what_is_late_and_nobody_elses_is_committed_before_it_is_handed_out_again
            commit_and_take::what_is_named_twice_is_done_once
            commit_and_take::a_late_delivery_whose_state_redis_has_lost_is_lost_and_comes_again
            commit_and_take::what_was_prolonged_leaves_nothing_behind
            commit_and_take::a_duplicate_of_a_priority_is_due_now
            commit_and_take::s4_10_commits_of_all_slots_go_with_a_take_of_one
            commit_and_take::s4_11_many_are_sent_taken_and_committed_in_their_order_by_few_steps
            commit_and_take::of_many_that_are_sent_each_has_its_own_answer
            commit_and_take::many_that_come_back_and_new_ones_are_taken_together
            commit_and_take::what_has_lost_when_it_was_first_delivered_has_it_from_its_next_delivery
            commit_and_take::s4_8_a_name_that_another_message_has_by_now_stays_its_own
            commit_and_take::when_it_was_first_delivered_is_known_whatever_time_its_taker_had
            waiting::a_waiting_taker_is_woken_by_what_is_due_earlier_and_asks_nothing_meanwhile
            waiting::a_waiting_taker_is_woken_by_what_comes_back_and_by_what_is_put_back
            waiting::who_does_not_wait_is_not_told
            waiting::a_taker_is_told_when_to_ask_again
            commit_and_take::commits_do_not_wait_for_what_is_due_later
            commit_and_take::a_waiting_taker_is_woken_once_by_the_earliest_of_many
        }
    };
}
pub(crate) use each_case;

macro_rules! list {
    ($($place:ident::$case:ident)+) => {
        pub(crate) const CASES: &[(&str, Case)] = &[$((stringify!($case), |world| Box::pin($place::$case(world)))),+];
    };
}
each_case!(list);

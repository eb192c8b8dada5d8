//! The list of cases, and how one is played.
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::delay::world::{Place, World};
use crate::delay::{dead, kinds, next, retries, wake};

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
            kinds::b30_s4_2_a_duplicate_within_the_interval_merges_and_keeps_the_first_time
            kinds::b30_m6a_one_sent_while_the_first_is_in_flight_is_a_delivery_of_its_own
            kinds::b31_s4_3_larger_priorities_come_first_and_equal_ones_in_the_order_they_were_sent
            kinds::b31_s4_12_the_same_body_twice_is_two_messages
            kinds::s4_11_of_one_time_the_first_sent_comes_first
            kinds::b31_those_that_come_back_rank_behind_all_new_ones
            kinds::b32_s4_4_a_fixed_time_is_due_only_when_it_is_past
            kinds::b31_b32_s4_what_cannot_be_is_refused_by_name_with_the_rule_and_the_remedy
            kinds::a_delay_is_counted_from_when_the_server_has_it
            kinds::work_is_scheduled_once_by_its_key_until_it_is_settled_or_called_off
            kinds::a_delay_that_was_scheduled_tells_its_time_whatever_kind_holds_its_key
            kinds::a_message_is_called_off_by_the_id_it_was_given_by_the_server
            retries::s4_6_what_is_taken_is_held_until_it_is_committed
            retries::b33_m6c_s4_7_s4_8_what_nobody_settles_comes_again_at_the_timeout_and_not_before
            retries::s4_8_who_lost_a_message_can_do_nothing_to_its_next_delivery
            retries::s4_8_a_message_that_was_put_back_cannot_be_settled_by_who_put_it_back
            retries::a_sources_retry_leaves_its_marks_and_ranks_behind_new_ones
            retries::n142_a_retry_may_be_put_off_for_any_time
            retries::s4_8_a_source_that_lost_a_message_cannot_bury_it
            retries::what_is_late_and_nobody_elses_is_still_its_takers
            retries::what_is_extended_is_held_from_then_on
            retries::d8_a_rollback_has_a_real_backoff
            retries::s4_9_d8_in_the_compatible_mode_a_retry_ranks_by_the_retries_that_are_left
            retries::b33_d7_sixteen_retries_are_seventeen_deliveries_and_then_it_is_dead
            retries::b33_s4_8_deliveries_that_nobody_settles_are_counted_and_end_among_the_dead
            retries::b33_m6b_sending_again_does_not_reset_the_counter
            retries::a_batch_is_committed_in_one_step_and_each_has_its_own_answer
            retries::one_whose_body_is_gone_is_passed_over
            retries::n143_what_cannot_be_read_is_put_aside_with_its_bytes
            dead::dead_letters_are_listed_oldest_first_and_put_back_as_first_attempts_that_have_died
            dead::dead_letters_are_told_in_the_order_they_died_and_cannot_be_called_off
            dead::what_dies_again_has_died_twice
            dead::a_message_that_was_buried_frees_its_id_and_keeps_another_ones
            dead::dead_letters_are_removed_oldest_first_and_no_more_than_asked_for
            dead::counts_say_what_is_ready_waiting_in_flight_and_dead_and_for_how_long
            dead::of_several_priorities_and_times_the_oldest_is_told
            dead::a_topic_is_purged_whole_and_its_numbers_go_on
            dead::no_number_is_given_twice_when_the_clock_stands_still_or_goes_back
            next::s4_6_what_is_done_is_committed_and_the_next_is_taken_by_one_step
            next::s4_8_a_commit_that_comes_too_late_is_lost_and_the_next_are_taken_all_the_same
            next::what_is_late_and_nobody_elses_is_committed_before_it_is_handed_out_again
            next::what_is_named_twice_is_done_once
            next::a_late_delivery_whose_state_redis_has_lost_is_lost_and_comes_again
            next::what_was_prolonged_leaves_nothing_behind
            next::a_duplicate_of_a_priority_is_due_now
            next::s4_10_commits_of_all_slots_go_with_a_take_of_one
            next::s4_11_many_are_sent_taken_and_committed_in_their_order_by_few_steps
            next::of_many_that_are_sent_each_has_its_own_answer
            next::many_that_come_back_and_new_ones_are_taken_together
            next::what_has_lost_when_it_was_first_delivered_has_it_from_its_next_delivery
            next::s4_8_a_name_that_another_message_has_by_now_stays_its_own
            next::when_it_was_first_delivered_is_known_whatever_time_its_taker_had
            wake::a_waiting_taker_is_woken_by_what_is_due_earlier_and_asks_nothing_meanwhile
            wake::a_waiting_taker_is_woken_by_what_comes_back_and_by_what_is_put_back
            wake::who_does_not_wait_is_not_told
            wake::a_taker_is_told_when_to_ask_again
            next::commits_do_not_wait_for_what_is_due_later
            next::a_waiting_taker_is_woken_once_by_the_earliest_of_many
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

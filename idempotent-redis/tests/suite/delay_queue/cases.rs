//! The list of cases, and the function that runs one.
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::delay_queue::world::{Place, World};
use crate::delay_queue::{commit_and_receive, dead_letters, message_kinds, redelivery, waiting};

pub(crate) type Case = for<'w> fn(&'w World) -> Pin<Box<dyn Future<Output = ()> + 'w>>;

pub(crate) fn play(case: Case, place: &Arc<Place>, edit: impl Fn(&str) -> String + Send + Sync + 'static) {
    let world = World::new(place.clone(), edit);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let played = tokio::time::timeout(std::time::Duration::from_secs(120), case(&world)).await;
        played.expect("it has not ended");
    });
}

/// Lists all cases, slow ones last.
macro_rules! each_case {
    ($then:ident) => {
        $then! {
            message_kinds::a_duplicate_within_the_interval_is_merged_and_keeps_the_first_time
            message_kinds::a_message_sent_while_the_first_is_in_delivery_is_not_merged
            message_kinds::higher_priorities_come_first_and_equal_ones_in_the_order_of_sending
            message_kinds::the_same_body_sent_twice_is_two_messages
            message_kinds::messages_of_equal_time_are_delivered_in_the_order_of_sending
            message_kinds::retries_rank_after_all_new_messages
            message_kinds::a_fixed_time_is_due_only_once_it_has_passed
            message_kinds::invalid_messages_are_refused_with_the_rule_and_the_remedy
            message_kinds::a_delay_starts_when_the_server_accepts_the_message
            message_kinds::a_task_is_scheduled_once_per_key_until_it_is_settled_or_cancelled
            message_kinds::scheduling_returns_the_time_of_any_message_with_the_key
            message_kinds::a_message_is_cancelled_by_its_server_assigned_id
            message_kinds::a_backlog_of_delayed_messages_is_divided_over_the_slots
            redelivery::a_taken_message_is_held_until_it_is_committed
            redelivery::an_unsettled_message_is_redelivered_at_the_timeout_and_not_before
            redelivery::an_expired_delivery_cannot_affect_the_next_one
            redelivery::a_rolled_back_delivery_can_no_longer_be_settled
            redelivery::a_retry_by_a_source_keeps_its_counters_and_ranks_after_new_messages
            redelivery::a_retry_may_be_delayed_by_any_time
            redelivery::a_source_that_lost_a_message_cannot_dead_letter_it
            redelivery::an_expired_delivery_can_be_settled_until_it_is_redelivered
            redelivery::an_extended_delivery_is_held_from_the_extension_on
            redelivery::a_rollback_delays_the_message_by_its_backoff
            redelivery::an_immediate_retry_ranks_by_its_remaining_retries
            redelivery::a_message_is_dead_after_16_retries_and_17_deliveries
            redelivery::expired_deliveries_are_counted_and_end_as_dead_letters
            redelivery::resending_a_message_does_not_reset_its_retries
            redelivery::a_batch_is_committed_by_one_call_with_a_result_per_delivery
            redelivery::a_message_without_a_body_is_skipped
            redelivery::an_undecodable_message_is_dead_lettered_with_its_bytes
            redelivery::damaged_data_of_a_message_holds_up_no_other_message
            dead_letters::dead_letters_are_listed_oldest_first_and_redriven_as_first_attempts
            dead_letters::dead_letters_are_listed_in_order_of_death_and_cannot_be_cancelled
            dead_letters::a_message_that_dies_again_has_two_deaths
            dead_letters::a_dead_letter_is_removed_with_all_its_data_and_only_in_the_death_that_was_read
            dead_letters::a_message_that_dies_after_the_count_is_not_listed
            dead_letters::a_dead_letter_frees_its_id_and_not_the_id_of_another_message
            dead_letters::dead_letters_are_removed_oldest_first_up_to_the_limit
            dead_letters::counts_report_ready_waiting_in_flight_and_dead_messages_and_the_oldest_age
            dead_letters::counts_report_the_oldest_of_several_priorities_and_times
            dead_letters::purging_a_topic_removes_everything_but_its_number_sequence
            dead_letters::numbers_are_unique_with_a_stopped_or_backward_clock
            commit_and_receive::one_call_commits_deliveries_and_takes_the_next
            commit_and_receive::a_late_commit_is_lost_and_the_next_messages_are_taken
            commit_and_receive::an_expired_delivery_is_committed_before_its_redelivery
            commit_and_receive::a_delivery_named_twice_is_committed_once
            commit_and_receive::an_expired_delivery_with_lost_state_is_lost_and_redelivered
            commit_and_receive::a_committed_extended_delivery_leaves_nothing_on_the_server
            commit_and_receive::a_duplicate_with_a_priority_is_due_now
            commit_and_receive::commits_for_all_slots_are_sent_with_a_take_from_one
            commit_and_receive::many_messages_are_sent_taken_and_committed_in_order_with_few_calls
            commit_and_receive::each_of_many_sent_messages_has_its_own_result
            commit_and_receive::retries_and_new_messages_are_taken_together
            commit_and_receive::a_lost_first_delivery_time_is_replaced_by_the_next_delivery
            commit_and_receive::a_late_commit_keeps_a_name_that_another_message_uses
            commit_and_receive::the_first_delivery_time_is_known_for_any_visibility_timeout
            waiting::a_waiting_receiver_is_woken_by_an_earlier_message_and_sends_no_commands
            waiting::a_waiting_receiver_is_woken_by_retries_and_redrives
            waiting::no_notification_is_sent_without_a_waiting_receiver
            waiting::a_receiver_learns_when_to_poll_again
            commit_and_receive::commits_do_not_wait_for_later_messages
            commit_and_receive::a_waiting_receiver_is_woken_once_by_the_earliest_of_many_messages
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

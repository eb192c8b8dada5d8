//! The list of laws by name, for `conformance!` and for custom runners.
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use super::{Need, Subject, Threads, hold_named};

/// Lists every law of a store, with its needs.
#[doc(hidden)]
#[macro_export]
macro_rules! __laws {
    ($callback:ident $($with:tt)*) => {
        $crate::$callback! { $($with)*
            One claims []:
                an_absent_key_is_acquired
                a_held_key_is_in_flight_for_everybody_else
                the_same_owner_claiming_again_gets_the_same_grant
                the_same_owner_may_claim_again_after_its_lease_while_nobody_took_over
                a_lease_holds_until_its_end_and_may_be_taken_over_from_then_on
                an_expired_lease_is_parked_if_asked
                a_deleted_key_may_be_claimed_at_once_and_leaves_no_trace
                a_vacant_key_is_delayed_until_its_time_and_then_acquired
                a_consumed_key_answers_with_its_value
                a_failed_key_answers_with_its_error
                a_dead_key_answers_with_its_attempts_and_error;
            One fencing []:
                fencing_rises_over_every_kind_of_release
                fencing_rises_over_takeover
                fencing_rises_when_a_record_was_past_its_time
                fencing_rises_within_one_instant
                fencing_is_a_number_every_script_language_can_hold;
            One fencing [purge]:
                fencing_rises_over_purge_within_one_instant;
            One fencing [clock]:
                fencing_rises_over_expiry_when_it_ran_ahead_of_the_clock;
            One fencing [admin]:
                fencing_rises_over_forgetting;
            One attempts []:
                attempts_are_counted_over_vacancy_and_takeover
                a_refunded_attempt_is_not_counted
                a_refund_with_nothing_to_remember_leaves_no_trace
                a_refunded_takeover_is_told_to_the_next_run
                a_vacant_key_out_of_attempts_is_buried
                an_expired_lease_out_of_attempts_is_buried
                a_live_lease_on_its_last_attempt_is_in_flight
                without_a_limit_nothing_is_buried
                a_buried_run_is_not_granted_again;
            One payloads []:
                another_payload_is_a_mismatch_while_the_key_is_held_or_settled
                an_equal_or_unknown_fingerprint_is_no_mismatch
                a_vacant_key_takes_the_new_fingerprint
                an_expired_lease_takes_the_new_fingerprint
                a_dead_key_is_dead_for_every_payload
                a_delayed_key_is_delayed_for_every_payload;
            One owners []:
                nobody_but_the_owner_changes_a_held_key
                nobody_changes_a_settled_key
                a_superseded_owner_is_told_what_is_there_and_changes_nothing
                a_superseded_grant_stays_superseded_though_its_claim_comes_again
                a_late_owner_may_settle_while_nobody_took_over
                a_completion_repeated_by_its_owner_is_done_and_the_first_result_stands
                a_consumed_key_is_not_undone_by_its_owner
                a_release_repeated_by_its_owner_is_lost
                a_renewal_counts_from_now
                a_renewal_never_shortens
                a_key_that_has_gone_is_not_brought_back
                no_run_is_granted_without_a_cause;
            One time []:
                a_consumed_key_is_remembered_for_its_retention_and_no_longer
                a_retention_for_ever_does_not_end
                a_failed_key_is_remembered_for_its_memory_and_no_longer
                a_dead_key_is_remembered_for_its_memory_and_no_longer
                a_vacant_key_is_remembered_for_its_memory_after_its_delay
                an_orphaned_key_counts_as_absent_past_lease_and_memory
                a_renewed_key_keeps_its_memory;
            One ends [clock]:
                the_store_lives_by_the_clock_it_was_given
                a_lease_ends_to_the_ms
                a_renewed_lease_ends_to_the_ms
                a_delay_ends_to_the_ms
                a_retention_ends_to_the_ms
                a_memory_ends_to_the_ms
                an_owner_has_its_lease_to_the_last_ms;
            One clients [clients]:
                a_client_with_a_wrong_clock_takes_over_neither_early_nor_late
                a_client_with_a_wrong_clock_gives_spans_of_the_same_length
                a_client_with_a_wrong_clock_sees_no_end_early_or_late
                fencing_rises_whatever_the_clients_clocks_say;
            Many races []:
                of_racing_claims_one_is_acquired
                of_racing_takeovers_one_is_acquired
                of_a_late_completion_and_a_takeover_one_wins
                of_a_late_renewal_or_release_and_a_takeover_one_wins
                holders_in_turn_never_overlap_and_their_numbers_rise
                racing_copies_of_one_completion_are_all_done;
            One connections [second]:
                what_one_connection_wrote_the_other_sees
                a_key_held_over_one_connection_is_guarded_over_the_other;
            Many connections [second]:
                of_claims_racing_over_two_connections_one_is_acquired;
            One connections [second watch]:
                watchers_are_woken_over_another_connection;
            One replies []:
                a_claim_whose_reply_was_lost_is_granted_the_same_again
                a_claim_that_never_arrived_is_granted_at_the_next_try
                a_completion_whose_reply_was_lost_is_done_when_asked_again
                a_completion_that_never_arrived_is_done_at_the_next_try
                a_renewal_whose_reply_was_lost_may_be_repeated
                a_release_whose_reply_was_lost_is_applied_once
                a_late_copy_of_a_call_changes_nothing_of_another_run
                a_call_dropped_half_way_is_settled_by_asking_again;
            One replies [losing]:
                a_lost_reply_is_ambiguous_and_a_refused_call_is_not;
            One keys []:
                keys_that_look_alike_are_kept_apart
                keys_that_differ_in_one_place_are_kept_apart
                keys_whose_name_and_hash_run_together_are_kept_apart
                stored_keys_that_differ_only_by_case_are_kept_apart
                tenants_scenes_and_scopes_are_kept_apart
                hostile_texts_and_values_come_back_as_they_were
                a_large_value_comes_back_whole;
            One damage [planting]:
                a_damaged_record_is_corrupt_to_every_step
                a_record_of_a_newer_version_is_refused_by_every_step
                what_cannot_be_read_is_never_overwritten_or_deleted
                what_cannot_be_read_is_no_mismatch;
            One damage [planting foreign]:
                a_foreign_value_is_refused_by_every_step;
            One damage [planting purge]:
                a_purge_leaves_what_it_cannot_read;
            One damage [planting browse]:
                browsing_leaves_what_it_cannot_read;
            One damage [planting batch]:
                a_batch_refuses_only_what_it_cannot_read;
            One capabilities []:
                reported_capabilities_work;
            One capabilities [batch]:
                a_batch_answers_as_if_each_request_had_come_alone;
            One capabilities [watch]:
                watchers_are_woken_by_completion_and_release;
            One journal [journal]:
                steps_come_back_as_they_were_noted
                a_step_only_goes_on
                nobody_but_the_owner_reads_or_notes_steps
                a_superseded_owner_notes_no_step
                steps_outlive_release_and_takeover
                a_record_that_begins_anew_has_no_steps
                steps_of_two_keys_are_kept_apart;
            Many journal [journal]:
                of_a_late_note_and_a_takeover_nothing_noted_is_missed;
            One order [order]:
                a_stream_nobody_spoke_of_has_no_line
                a_line_is_put_back_only_by_who_saw_it_as_it_is
                a_line_of_any_bytes_comes_back_as_it_was
                lines_of_two_streams_are_kept_apart
                a_line_is_no_record;
            One order [order purge]:
                a_line_outlives_a_purge_until_its_time_is_over;
            Many order [order]:
                of_racing_changes_of_one_line_none_is_lost;
            One capabilities [browse]:
                browsing_lists_each_live_key_once;
            One capabilities [purge]:
                a_purge_is_bounded_and_harmless;
            One capabilities [admin]:
                a_settled_key_can_be_forgotten_by_its_number_only
                a_held_key_is_forgotten_by_force_only;
            One equality []:
                random_operations_are_answered_as_the_protocol_answers_them;
        }
    };
}

/// A law: its name, its needs, and its function.
#[derive(Clone, Copy)]
pub struct Law {
    name: &'static str,
    group: &'static str,
    needs: &'static [Need],
    threads: Threads,
    body: for<'a> fn(&'a Subject) -> Body<'a>,
}

type Body<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl Law {
    /// Returns the name of the law: a statement that can be false.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the module of [`laws`](super::laws) that contains the law.
    #[must_use]
    pub fn group(&self) -> &'static str {
        self.group
    }

    /// Returns the needs of the law.
    #[must_use]
    pub fn needs(&self) -> &'static [Need] {
        self.needs
    }

    /// Checks the law with a new subject, on a separate runtime; see [`hold`](super::hold).
    ///
    /// # Panics
    /// If the law is broken or does not end, or if the subject does not offer its needs.
    pub fn hold<B>(&self, build: impl Fn() -> B)
    where
        B: IntoFuture<Output = Subject>,
    {
        hold_named(self.name, self.threads, build, async |subject: &Subject| (self.body)(subject).await);
    }

    /// Checks the law like [`hold`](Self::hold), unless the subject lacks one of the law's needs.
    #[allow(clippy::print_stderr, reason = "this is the body of a test")]
    pub(super) fn hold_if_offered<B>(&self, build: impl Fn() -> B)
    where
        B: IntoFuture<Output = Subject>,
    {
        hold_named(self.name, self.threads, build, async |subject: &Subject| {
            let missing = subject.missing();
            match self.needs.iter().find(|need| missing.contains(need)) {
                Some(need) => eprintln!("not shown: without {need}; see the test `a_missing_capability_excludes_its_laws`"),
                None => (self.body)(subject).await,
            }
        });
    }
}

impl fmt::Debug for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Law").field("name", &self.name).field("needs", &self.needs).finish_non_exhaustive()
    }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __law_table {
    ($($threads:ident $group:ident [$($need:ident)*]: $($law:ident)+;)+) => {
        &[$($crate::__law_table! { @each $threads $group [$($need)*] $($law)+ }),+]
    };
    (@each $threads:ident $group:ident $needs:tt $($law:ident)+) => {
        &[$($crate::__law_table! { @one $threads $group $needs $law }),+]
    };
    (@one $threads:ident $group:ident [$($need:ident)*] $law:ident) => {
        Law {
            name: stringify!($law),
            group: stringify!($group),
            needs: &[$($crate::__need!($need)),*],
            threads: Threads::$threads,
            body: |subject| Box::pin(super::laws::$group::$law(subject)),
        }
    };
}

const GROUPS: &[&[Law]] = crate::__laws! { __law_table };

/// Returns every law, in the order of [`conformance!`](crate::conformance!), for a custom runner.
///
/// ```
/// use idempotent_core::MemoryStore;
/// use idempotent_testkit::conformance::laws;
/// use idempotent_testkit::Subject;
///
/// let about_payloads = laws::all().filter(|law| law.group() == "payloads" && law.needs().is_empty());
/// for law in about_payloads.take(2) {
///     law.hold(|| Subject::new(MemoryStore::new()));
/// }
/// ```
pub fn all() -> impl Iterator<Item = &'static Law> {
    GROUPS.iter().copied().flatten()
}

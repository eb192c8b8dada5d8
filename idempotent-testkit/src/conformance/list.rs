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
                a_held_key_is_in_flight_for_other_callers
                the_same_owner_claiming_again_gets_the_same_grant
                the_same_owner_may_claim_again_after_its_lease_before_a_takeover
                a_lease_may_be_taken_over_from_its_end
                an_expired_lease_is_parked_if_asked
                a_deleted_key_may_be_claimed_at_once_and_leaves_no_trace
                a_vacant_key_is_delayed_until_its_time_and_then_acquired
                a_consumed_key_answers_with_its_value
                a_failed_key_answers_with_its_error
                a_dead_key_answers_with_its_attempts_and_error;
            One fencing []:
                fencing_rises_over_every_kind_of_release
                fencing_rises_over_takeover
                fencing_rises_after_an_expired_record
                fencing_rises_within_one_instant
                fencing_tokens_fit_the_numbers_of_every_script_language;
            One fencing [purge]:
                fencing_rises_over_purge_within_one_instant;
            One fencing [clock]:
                fencing_rises_over_expiry_when_tokens_are_ahead_of_the_clock;
            One fencing [admin]:
                fencing_rises_over_deletion_by_an_operator;
            One attempts []:
                attempts_are_counted_over_vacancy_and_takeover
                a_refunded_attempt_is_not_counted
                a_refund_of_the_first_attempt_leaves_no_record
                a_refunded_takeover_is_visible_to_the_next_run
                a_vacant_key_without_attempts_left_is_dead
                an_expired_lease_without_attempts_left_is_dead
                a_live_lease_on_its_last_attempt_is_in_flight
                without_a_limit_no_key_becomes_dead
                a_dead_lettered_run_is_not_granted_again;
            One payloads []:
                another_payload_is_a_mismatch_while_the_key_is_held_or_settled
                an_equal_or_unknown_fingerprint_is_no_mismatch
                a_vacant_key_takes_the_new_fingerprint
                an_expired_lease_takes_the_new_fingerprint
                a_dead_key_is_dead_for_every_payload
                a_delayed_key_is_delayed_for_every_payload;
            One owners []:
                only_the_owner_changes_a_held_key
                a_settled_key_is_not_changed
                a_superseded_owner_receives_the_current_state_and_changes_nothing
                a_superseded_grant_stays_superseded_after_a_repeated_claim
                a_late_owner_may_settle_before_a_takeover
                a_completion_repeated_by_its_owner_is_done_and_keeps_the_first_result
                a_consumed_key_is_not_undone_by_its_owner
                a_release_repeated_by_its_owner_is_lost
                a_renewal_counts_from_now
                a_renewal_never_shortens
                a_deleted_key_is_not_restored
                each_grant_has_a_cause;
            One time []:
                a_consumed_key_is_kept_for_its_retention_and_no_longer
                an_unlimited_retention_does_not_end
                a_failed_key_is_kept_for_its_retention_and_no_longer
                a_dead_key_is_kept_for_its_retention_and_no_longer
                a_vacant_key_is_kept_for_its_retention_after_its_delay
                an_orphaned_key_is_absent_after_lease_and_retention
                a_renewed_key_keeps_its_retention;
            One ends [clock]:
                the_store_uses_its_configured_clock
                a_lease_ends_to_the_ms
                a_renewed_lease_ends_to_the_ms
                a_delay_ends_to_the_ms
                a_retention_ends_to_the_ms
                a_failure_retention_ends_to_the_ms
                an_owner_has_its_lease_to_the_last_ms;
            One clients [clients]:
                a_client_with_a_wrong_clock_takes_over_neither_early_nor_late
                a_client_with_a_wrong_clock_sets_durations_of_the_same_length
                a_client_with_a_wrong_clock_sees_each_expiry_in_time
                fencing_rises_with_any_client_clock;
            Many races []:
                one_of_several_racing_claims_is_acquired
                one_of_several_racing_takeovers_is_acquired
                either_a_late_completion_or_a_takeover_wins
                either_a_late_renewal_or_release_or_a_takeover_wins
                successive_holders_never_overlap_and_their_tokens_rise
                racing_copies_of_one_completion_are_all_done;
            One connections [second]:
                a_connection_sees_the_writes_of_another_one
                a_key_held_over_one_connection_is_guarded_over_the_other;
            Many connections [second]:
                one_of_several_claims_over_two_connections_is_acquired;
            One connections [second watch]:
                watchers_are_woken_over_another_connection;
            One replies []:
                a_claim_with_a_lost_response_receives_the_same_grant_on_retry
                a_claim_with_a_lost_request_is_granted_on_retry
                a_completion_with_a_lost_response_is_done_on_retry
                a_completion_with_a_lost_request_is_done_on_retry
                a_renewal_with_a_lost_response_may_be_repeated
                a_release_with_a_lost_response_is_applied_once
                a_late_copy_of_a_call_changes_nothing_of_another_run
                a_dropped_call_is_settled_by_its_repetition;
            One replies [losing]:
                a_lost_response_is_ambiguous_and_a_refused_call_is_not;
            One keys []:
                keys_that_look_alike_are_separate
                keys_that_differ_in_one_byte_are_separate
                keys_with_an_ambiguous_boundary_of_name_and_hash_are_separate
                stored_keys_that_differ_only_by_case_are_separate
                tenants_scenes_and_scopes_are_separate
                hostile_texts_and_values_are_read_back_unchanged
                a_large_value_is_read_back_whole;
            One damage [planting]:
                a_damaged_record_is_corrupt_for_each_operation
                a_record_of_a_newer_version_is_refused_by_each_operation
                an_unreadable_record_is_never_overwritten_or_deleted
                an_unreadable_record_is_not_a_mismatch;
            One damage [planting foreign]:
                a_foreign_value_is_refused_by_each_operation;
            One damage [planting purge]:
                a_purge_keeps_unreadable_records;
            One damage [planting search]:
                a_search_reports_unreadable_records;
            One damage [planting batch]:
                a_batch_refuses_only_unreadable_records;
            One capabilities []:
                reported_capabilities_work;
            One capabilities [batch]:
                a_batch_answers_like_separate_requests;
            One capabilities [watch]:
                watchers_are_woken_by_completion_and_release;
            One journal [journal]:
                steps_are_read_back_unchanged
                a_step_never_returns_to_an_earlier_state
                only_the_owner_reads_and_records_steps
                a_superseded_owner_records_no_step
                steps_survive_release_and_takeover
                a_new_record_of_a_key_has_no_steps
                steps_of_two_keys_are_separate;
            Many journal [journal]:
                a_takeover_sees_each_recorded_step;
            One order [order]:
                an_unknown_stream_has_no_order_state
                order_state_is_written_only_with_its_current_version
                order_state_of_any_bytes_is_read_back_unchanged
                order_states_of_two_streams_are_separate
                order_state_is_not_a_record;
            One order [order purge]:
                order_state_survives_a_purge_until_it_expires;
            Many order [order]:
                racing_changes_of_one_order_state_are_not_lost;
            One search [search]:
                a_search_lists_each_live_key_once
                a_search_selects_by_every_condition_of_its_filter
                a_search_stays_within_its_limits
                a_search_returns_no_results
                a_search_resumes_after_inserts_and_deletions;
            One capabilities [purge]:
                a_purge_is_bounded_and_harmless;
            One capabilities [admin]:
                a_settled_key_is_deleted_only_with_its_fencing_token
                a_held_key_is_deleted_only_by_force;
            One equality []:
                random_operations_are_answered_by_the_protocol;
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
                Some(need) => {
                    eprintln!("not shown: without {need}; see the test `a_missing_capability_excludes_its_laws`")
                }
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

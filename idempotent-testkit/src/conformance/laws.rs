//! The laws, one function each, in groups. The name states the law, and a panic reports a violation.
//!
//! [`conformance!`](crate::conformance!) creates a test for each law. [`all`] lists them, and [`hold`](super::hold)
//! checks a single one. The laws in [`cas`] are for backends: [`cas_conformance!`](crate::cas_conformance!) and
//! [`hold_cas`](super::hold_cas). The laws in [`skew`] are for stores whose processes read different clocks:
//! [`skew_conformance!`](crate::skew_conformance!). In addition to the laws below, one law covers all rows and invariants at once:
//! `random_operations_are_answered_by_the_protocol`.
//!
//! # Laws by operation of the protocol
//!
//! | operation | laws |
//! |---|---|
//! | claim of an absent key | `an_absent_key_is_acquired`, `a_deleted_key_may_be_claimed_at_once_and_leaves_no_trace`, `one_of_several_racing_claims_is_acquired`, `one_of_several_claims_over_two_connections_is_acquired` |
//! | claim of a vacant key | `a_vacant_key_is_delayed_until_its_time_and_then_acquired`, `a_vacant_key_takes_the_new_fingerprint`, `attempts_are_counted_over_vacancy_and_takeover` |
//! | claim by the same token | `the_same_owner_claiming_again_gets_the_same_grant`, `the_same_owner_may_claim_again_after_its_lease_before_a_takeover`, `a_claim_with_a_lost_response_receives_the_same_grant_on_retry`, `a_claim_with_a_lost_request_is_granted_on_retry`, `a_dropped_call_is_settled_by_its_repetition` |
//! | claim of a key in flight | `a_held_key_is_in_flight_for_other_callers`, `a_live_lease_on_its_last_attempt_is_in_flight`, `a_key_held_over_one_connection_is_guarded_over_the_other` |
//! | takeover | `a_lease_may_be_taken_over_from_its_end`, `a_lease_ends_to_the_ms`, `an_expired_lease_takes_the_new_fingerprint`, `one_of_several_racing_takeovers_is_acquired`, `fencing_rises_over_takeover`, `a_client_with_a_wrong_clock_takes_over_neither_early_nor_late` |
//! | bury | `a_vacant_key_without_attempts_left_is_dead`, `an_expired_lease_without_attempts_left_is_dead`, `an_expired_lease_is_parked_if_asked`, `without_a_limit_no_key_becomes_dead` |
//! | claim of a delayed key | `a_vacant_key_is_delayed_until_its_time_and_then_acquired`, `a_delay_ends_to_the_ms`, `a_delayed_key_is_delayed_for_every_payload` |
//! | claim of a failed or dead key | `a_failed_key_answers_with_its_error`, `a_dead_key_answers_with_its_attempts_and_error`, `a_dead_key_is_dead_for_every_payload` |
//! | claim of a consumed key | `a_consumed_key_answers_with_its_value`, `a_large_value_is_read_back_whole`, `hostile_texts_and_values_are_read_back_unchanged` |
//! | claim with another payload | `another_payload_is_a_mismatch_while_the_key_is_held_or_settled`, `an_equal_or_unknown_fingerprint_is_no_mismatch`, `an_unreadable_record_is_not_a_mismatch` |
//! | renew | `a_renewal_counts_from_now`, `a_renewal_never_shortens`, `a_renewed_lease_ends_to_the_ms`, `a_renewed_key_keeps_its_retention`, `a_renewal_with_a_lost_response_may_be_repeated`, `either_a_late_renewal_or_release_or_a_takeover_wins` |
//! | complete | `a_consumed_key_answers_with_its_value`, `a_late_owner_may_settle_before_a_takeover`, `a_completion_with_a_lost_request_is_done_on_retry`, `either_a_late_completion_or_a_takeover_wins` |
//! | complete again | `a_completion_repeated_by_its_owner_is_done_and_keeps_the_first_result`, `a_completion_with_a_lost_response_is_done_on_retry`, `racing_copies_of_one_completion_are_all_done` |
//! | release | `a_deleted_key_may_be_claimed_at_once_and_leaves_no_trace`, `a_vacant_key_is_delayed_until_its_time_and_then_acquired`, `a_release_repeated_by_its_owner_is_lost`, `a_release_with_a_lost_response_is_applied_once`, `either_a_late_renewal_or_release_or_a_takeover_wins` |
//! | release of the last run | `a_dead_lettered_run_is_not_granted_again` |
//! | release with a refund | `a_refunded_attempt_is_not_counted`, `a_refund_of_the_first_attempt_leaves_no_record`, `a_refunded_takeover_is_visible_to_the_next_run` |
//! | fail | `a_failed_key_answers_with_its_error`, `a_failed_key_is_kept_for_its_retention_and_no_longer` |
//! | abandon | `a_lease_may_be_taken_over_from_its_end`, `an_orphaned_key_is_absent_after_lease_and_retention` |
//! | forget | `a_settled_key_is_deleted_only_with_its_fencing_token`, `a_held_key_is_deleted_only_by_force`, `fencing_rises_over_deletion_by_an_operator` |
//! | purge | `a_purge_is_bounded_and_harmless`, `a_purge_keeps_unreadable_records`, `fencing_rises_over_purge_within_one_instant`, `an_orphaned_key_is_absent_after_lease_and_retention` |
//!
//! # Laws by invariant
//!
//! I7, I8, I9 and I11 concern the resource, the acknowledgement and the effect, which a store alone cannot show.
//!
//! | invariant | laws |
//! |---|---|
//! | I1 at most one unexpired holder | `successive_holders_never_overlap_and_their_tokens_rise`, `one_of_several_racing_claims_is_acquired`, `one_of_several_racing_takeovers_is_acquired`, `one_of_several_claims_over_two_connections_is_acquired` |
//! | I2 no foreign release | `only_the_owner_changes_a_held_key`, `a_late_copy_of_a_call_changes_nothing_of_another_run` |
//! | I3 no completion by a superseded owner | `a_superseded_owner_receives_the_current_state_and_changes_nothing`, `a_superseded_grant_stays_superseded_after_a_repeated_claim`, `either_a_late_completion_or_a_takeover_wins` |
//! | I4 consumed is never undone | `a_consumed_key_is_not_undone_by_its_owner`, `a_settled_key_is_not_changed` |
//! | I4b no grant within the retention | `a_consumed_key_is_kept_for_its_retention_and_no_longer`, `a_retention_ends_to_the_ms`, `an_unlimited_retention_does_not_end`, `a_client_with_a_wrong_clock_sees_each_expiry_in_time` |
//! | I5 the first result stands | `a_completion_repeated_by_its_owner_is_done_and_keeps_the_first_result`, `racing_copies_of_one_completion_are_all_done` |
//! | I6 fencing numbers rise | `fencing_rises_over_every_kind_of_release`, `fencing_rises_over_takeover`, `fencing_rises_after_an_expired_record`, `fencing_rises_within_one_instant`, `fencing_rises_over_purge_within_one_instant`, `fencing_rises_over_expiry_when_tokens_are_ahead_of_the_clock`, `fencing_rises_over_deletion_by_an_operator`, `fencing_rises_with_any_client_clock`, `fencing_tokens_fit_the_numbers_of_every_script_language` |
//! | I10 every grant has a cause | `each_grant_has_a_cause`, `a_deleted_key_is_not_restored` |
//! | I12 another payload is never a duplicate | `another_payload_is_a_mismatch_while_the_key_is_held_or_settled` |
//! | I13 an abandoned key becomes claimable | `a_lease_ends_to_the_ms`, `a_failure_retention_ends_to_the_ms`, `an_orphaned_key_is_absent_after_lease_and_retention`, `a_dead_key_is_kept_for_its_retention_and_no_longer`, `a_vacant_key_is_kept_for_its_retention_after_its_delay` |
//! | I14 an owner inside its lease is never refused | `an_owner_has_its_lease_to_the_last_ms`, `a_late_owner_may_settle_before_a_takeover` |
//!
//! # Other laws
//!
//! | subject | laws |
//! |---|---|
//! | keys | `keys_that_look_alike_are_separate`, `keys_that_differ_in_one_byte_are_separate`, `keys_with_an_ambiguous_boundary_of_name_and_hash_are_separate`, `stored_keys_that_differ_only_by_case_are_separate`, `tenants_scenes_and_scopes_are_separate` |
//! | records that cannot be read | `a_damaged_record_is_corrupt_for_each_operation`, `a_record_of_a_newer_version_is_refused_by_each_operation`, `a_foreign_value_is_refused_by_each_operation`, `an_unreadable_record_is_never_overwritten_or_deleted`, `a_search_reports_unreadable_records`, `a_batch_refuses_only_unreadable_records` |
//! | clocks | `the_store_uses_its_configured_clock`, `a_client_with_a_wrong_clock_sets_durations_of_the_same_length` |
//! | connections and errors | `a_connection_sees_the_writes_of_another_one`, `a_lost_response_is_ambiguous_and_a_refused_call_is_not` |
//! | steps | `steps_are_read_back_unchanged`, `a_step_never_returns_to_an_earlier_state`, `only_the_owner_reads_and_records_steps`, `a_superseded_owner_records_no_step`, `steps_survive_release_and_takeover`, `a_new_record_of_a_key_has_no_steps`, `steps_of_two_keys_are_separate`, `a_takeover_sees_each_recorded_step` |
//! | order | `an_unknown_stream_has_no_order_state`, `order_state_is_written_only_with_its_current_version`, `order_state_of_any_bytes_is_read_back_unchanged`, `order_states_of_two_streams_are_separate`, `order_state_is_not_a_record`, `order_state_survives_a_purge_until_it_expires`, `racing_changes_of_one_order_state_are_not_lost` |
//! | capabilities | `reported_capabilities_work`, `a_batch_answers_like_separate_requests`, `watchers_are_woken_by_completion_and_release`, `watchers_are_woken_over_another_connection` |
//! | search | `a_search_lists_each_live_key_once`, `a_search_selects_by_every_condition_of_its_filter`, `a_search_stays_within_its_limits`, `a_search_returns_no_results`, `a_search_resumes_after_inserts_and_deletions` |
#![allow(
    missing_docs,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "law bodies are test code, and the name of a law is its documentation"
)]
pub mod attempts;
pub mod capabilities;
pub mod cas;
pub mod claims;
pub mod clients;
pub mod connections;
pub mod damage;
pub mod ends;
pub mod equality;
pub mod fencing;
pub mod journal;
pub mod keys;
pub mod order;
pub mod owners;
pub mod payloads;
pub mod races;
pub mod replies;
pub mod search;
pub mod skew;
pub mod time;

pub use super::list::all;

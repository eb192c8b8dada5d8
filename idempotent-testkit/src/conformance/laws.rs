//! The laws, one function each, in groups. The name states the law, and a panic reports a violation.
//!
//! [`conformance!`](crate::conformance!) creates a test for each law. [`all`] lists them, and [`hold`](super::hold)
//! checks a single one. The laws in [`cas`] are for backends: [`cas_conformance!`](crate::cas_conformance!) and
//! [`hold_cas`](super::hold_cas). In addition to the laws below, one law covers all rows and invariants at once:
//! `random_operations_are_answered_as_the_protocol_answers_them`.
//!
//! # Laws by operation of the protocol
//!
//! | operation | laws |
//! |---|---|
//! | claim of an absent key | `an_absent_key_is_acquired`, `a_deleted_key_may_be_claimed_at_once_and_leaves_no_trace`, `of_racing_claims_one_is_acquired`, `of_claims_racing_over_two_connections_one_is_acquired` |
//! | claim of a vacant key | `a_vacant_key_is_delayed_until_its_time_and_then_acquired`, `a_vacant_key_takes_the_new_fingerprint`, `attempts_are_counted_over_vacancy_and_takeover` |
//! | claim by the same token | `the_same_owner_claiming_again_gets_the_same_grant`, `the_same_owner_may_claim_again_after_its_lease_while_nobody_took_over`, `a_claim_whose_reply_was_lost_is_granted_the_same_again`, `a_claim_that_never_arrived_is_granted_at_the_next_try`, `a_call_dropped_half_way_is_settled_by_asking_again` |
//! | claim of a key in flight | `a_held_key_is_in_flight_for_everybody_else`, `a_live_lease_on_its_last_attempt_is_in_flight`, `a_key_held_over_one_connection_is_guarded_over_the_other` |
//! | takeover | `a_lease_holds_until_its_end_and_may_be_taken_over_from_then_on`, `a_lease_ends_to_the_ms`, `an_expired_lease_takes_the_new_fingerprint`, `of_racing_takeovers_one_is_acquired`, `fencing_rises_over_takeover`, `a_client_with_a_wrong_clock_takes_over_neither_early_nor_late` |
//! | bury | `a_vacant_key_out_of_attempts_is_buried`, `an_expired_lease_out_of_attempts_is_buried`, `an_expired_lease_is_parked_if_asked`, `without_a_limit_nothing_is_buried` |
//! | claim of a delayed key | `a_vacant_key_is_delayed_until_its_time_and_then_acquired`, `a_delay_ends_to_the_ms`, `a_delayed_key_is_delayed_for_every_payload` |
//! | claim of a failed or dead key | `a_failed_key_answers_with_its_error`, `a_dead_key_answers_with_its_attempts_and_error`, `a_dead_key_is_dead_for_every_payload` |
//! | claim of a consumed key | `a_consumed_key_answers_with_its_value`, `a_large_value_comes_back_whole`, `hostile_texts_and_values_come_back_as_they_were` |
//! | claim with another payload | `another_payload_is_a_mismatch_while_the_key_is_held_or_settled`, `an_equal_or_unknown_fingerprint_is_no_mismatch`, `what_cannot_be_read_is_no_mismatch` |
//! | renew | `a_renewal_counts_from_now`, `a_renewal_never_shortens`, `a_renewed_lease_ends_to_the_ms`, `a_renewed_key_keeps_its_memory`, `a_renewal_whose_reply_was_lost_may_be_repeated`, `of_a_late_renewal_or_release_and_a_takeover_one_wins` |
//! | complete | `a_consumed_key_answers_with_its_value`, `a_late_owner_may_settle_while_nobody_took_over`, `a_completion_that_never_arrived_is_done_at_the_next_try`, `of_a_late_completion_and_a_takeover_one_wins` |
//! | complete again | `a_completion_repeated_by_its_owner_is_done_and_the_first_result_stands`, `a_completion_whose_reply_was_lost_is_done_when_asked_again`, `racing_copies_of_one_completion_are_all_done` |
//! | release | `a_deleted_key_may_be_claimed_at_once_and_leaves_no_trace`, `a_vacant_key_is_delayed_until_its_time_and_then_acquired`, `a_release_repeated_by_its_owner_is_lost`, `a_release_whose_reply_was_lost_is_applied_once`, `of_a_late_renewal_or_release_and_a_takeover_one_wins` |
//! | release of the last run | `a_buried_run_is_not_granted_again` |
//! | release with a refund | `a_refunded_attempt_is_not_counted`, `a_refund_with_nothing_to_remember_leaves_no_trace`, `a_refunded_takeover_is_told_to_the_next_run` |
//! | fail | `a_failed_key_answers_with_its_error`, `a_failed_key_is_remembered_for_its_memory_and_no_longer` |
//! | abandon | `a_lease_holds_until_its_end_and_may_be_taken_over_from_then_on`, `an_orphaned_key_counts_as_absent_past_lease_and_memory` |
//! | forget | `a_settled_key_can_be_forgotten_by_its_number_only`, `a_held_key_is_forgotten_by_force_only`, `fencing_rises_over_forgetting` |
//! | purge | `a_purge_is_bounded_and_harmless`, `a_purge_leaves_what_it_cannot_read`, `fencing_rises_over_purge_within_one_instant`, `an_orphaned_key_counts_as_absent_past_lease_and_memory` |
//!
//! # Laws by invariant
//!
//! I7, I8, I9 and I11 concern the resource, the acknowledgement and the effect, which a store alone cannot show.
//!
//! | invariant | laws |
//! |---|---|
//! | I1 at most one unexpired holder | `holders_in_turn_never_overlap_and_their_numbers_rise`, `of_racing_claims_one_is_acquired`, `of_racing_takeovers_one_is_acquired`, `of_claims_racing_over_two_connections_one_is_acquired` |
//! | I2 no foreign release | `nobody_but_the_owner_changes_a_held_key`, `a_late_copy_of_a_call_changes_nothing_of_another_run` |
//! | I3 no completion by a superseded owner | `a_superseded_owner_is_told_what_is_there_and_changes_nothing`, `a_superseded_grant_stays_superseded_though_its_claim_comes_again`, `of_a_late_completion_and_a_takeover_one_wins` |
//! | I4 consumed is never undone | `a_consumed_key_is_not_undone_by_its_owner`, `nobody_changes_a_settled_key` |
//! | I4b no grant within the retention | `a_consumed_key_is_remembered_for_its_retention_and_no_longer`, `a_retention_ends_to_the_ms`, `a_retention_for_ever_does_not_end`, `a_client_with_a_wrong_clock_sees_no_end_early_or_late` |
//! | I5 the first result stands | `a_completion_repeated_by_its_owner_is_done_and_the_first_result_stands`, `racing_copies_of_one_completion_are_all_done` |
//! | I6 fencing numbers rise | `fencing_rises_over_every_kind_of_release`, `fencing_rises_over_takeover`, `fencing_rises_when_a_record_was_past_its_time`, `fencing_rises_within_one_instant`, `fencing_rises_over_purge_within_one_instant`, `fencing_rises_over_expiry_when_it_ran_ahead_of_the_clock`, `fencing_rises_over_forgetting`, `fencing_rises_whatever_the_clients_clocks_say`, `fencing_is_a_number_every_script_language_can_hold` |
//! | I10 every grant has a cause | `no_run_is_granted_without_a_cause`, `a_key_that_has_gone_is_not_brought_back` |
//! | I12 another payload is never a duplicate | `another_payload_is_a_mismatch_while_the_key_is_held_or_settled` |
//! | I13 an abandoned key becomes claimable | `a_lease_ends_to_the_ms`, `a_memory_ends_to_the_ms`, `an_orphaned_key_counts_as_absent_past_lease_and_memory`, `a_dead_key_is_remembered_for_its_memory_and_no_longer`, `a_vacant_key_is_remembered_for_its_memory_after_its_delay` |
//! | I14 an owner inside its lease is never refused | `an_owner_has_its_lease_to_the_last_ms`, `a_late_owner_may_settle_while_nobody_took_over` |
//!
//! # Other laws
//!
//! | subject | laws |
//! |---|---|
//! | keys | `keys_that_look_alike_are_kept_apart`, `keys_that_differ_in_one_place_are_kept_apart`, `keys_whose_name_and_hash_run_together_are_kept_apart`, `stored_keys_that_differ_only_by_case_are_kept_apart`, `tenants_scenes_and_scopes_are_kept_apart` |
//! | records that cannot be read | `a_damaged_record_is_corrupt_to_every_step`, `a_record_of_a_newer_version_is_refused_by_every_step`, `a_foreign_value_is_refused_by_every_step`, `what_cannot_be_read_is_never_overwritten_or_deleted`, `browsing_leaves_what_it_cannot_read`, `a_batch_refuses_only_what_it_cannot_read` |
//! | clocks | `the_store_lives_by_the_clock_it_was_given`, `a_client_with_a_wrong_clock_gives_spans_of_the_same_length` |
//! | connections and errors | `what_one_connection_wrote_the_other_sees`, `a_lost_reply_is_ambiguous_and_a_refused_call_is_not` |
//! | steps | `steps_come_back_as_they_were_noted`, `a_step_only_goes_on`, `nobody_but_the_owner_reads_or_notes_steps`, `a_superseded_owner_notes_no_step`, `steps_outlive_release_and_takeover`, `a_record_that_begins_anew_has_no_steps`, `steps_of_two_keys_are_kept_apart`, `of_a_late_note_and_a_takeover_nothing_noted_is_missed` |
//! | order | `a_stream_nobody_spoke_of_has_no_line`, `a_line_is_put_back_only_by_who_saw_it_as_it_is`, `a_line_of_any_bytes_comes_back_as_it_was`, `lines_of_two_streams_are_kept_apart`, `a_line_is_no_record`, `a_line_outlives_a_purge_until_its_time_is_over`, `of_racing_changes_of_one_line_none_is_lost` |
//! | capabilities | `reported_capabilities_work`, `a_batch_answers_as_if_each_request_had_come_alone`, `watchers_are_woken_by_completion_and_release`, `watchers_are_woken_over_another_connection`, `browsing_lists_each_live_key_once` |
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
pub mod time;

pub use super::list::all;

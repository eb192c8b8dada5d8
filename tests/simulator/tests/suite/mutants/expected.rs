//! The laws about each bug.
use idempotent_simulator::mutants::Bug;

/// Returns the laws that must detect the bug, sorted as in [`Bug`]. The bug may break further laws.
pub(crate) fn laws_about(bug: Bug) -> &'static [&'static str] {
    match bug {
        Bug::NonAtomicClaim => {
            &["one_of_several_racing_claims_is_acquired", "successive_holders_never_overlap_and_their_tokens_rise"]
        }
        Bug::TakeoverWithoutCompare => {
            &["one_of_several_racing_takeovers_is_acquired", "either_a_late_completion_or_a_takeover_wins"]
        }
        Bug::SettlingWithoutCompare => {
            &["either_a_late_completion_or_a_takeover_wins", "either_a_late_renewal_or_release_or_a_takeover_wins"]
        }
        Bug::ClaimInTwoWrites => &["a_dropped_call_is_settled_by_its_repetition"],
        Bug::CompletionByDeleteAndInsert => &["racing_copies_of_one_completion_are_all_done"],
        Bug::AtomicPerConnection => &["one_of_several_claims_over_two_connections_is_acquired"],
        Bug::UnconditionalDelete => &["only_the_owner_changes_a_held_key", "a_consumed_key_is_not_undone_by_its_owner"],
        Bug::UnconditionalFlip => {
            &["only_the_owner_changes_a_held_key", "a_superseded_owner_receives_the_current_state_and_changes_nothing"]
        }
        Bug::TokenWithoutNumber => &["a_superseded_grant_stays_superseded_after_a_repeated_claim"],
        Bug::TokenWithoutState => &["a_consumed_key_is_not_undone_by_its_owner"],
        Bug::RenewWithoutOwner => &["only_the_owner_changes_a_held_key"],
        Bug::LateOwnerRefused => &["a_late_owner_may_settle_before_a_takeover"],
        Bug::LastResultStands => &["a_completion_repeated_by_its_owner_is_done_and_keeps_the_first_result"],
        Bug::RepeatedReleaseIsDone => &["a_release_repeated_by_its_owner_is_lost"],
        Bug::PutAfterVanish => &["a_deleted_key_is_not_restored"],
        Bug::RepetitionCounts => &[
            "the_same_owner_claiming_again_gets_the_same_grant",
            "a_claim_with_a_lost_response_receives_the_same_grant_on_retry",
        ],
        Bug::RepetitionIsInFlight => &[
            "the_same_owner_claiming_again_gets_the_same_grant",
            "a_claim_with_a_lost_response_receives_the_same_grant_on_retry",
        ],
        Bug::RepetitionTakesOver => &["the_same_owner_may_claim_again_after_its_lease_before_a_takeover"],
        Bug::EarlyTakeover => &["a_lease_ends_to_the_ms", "an_owner_has_its_lease_to_the_last_ms"],
        Bug::ExpiryIgnored => &["a_lease_may_be_taken_over_from_its_end"],
        Bug::ParkIgnored => &["an_expired_lease_is_parked_if_asked"],
        Bug::DelayIgnored => &["a_vacant_key_is_delayed_until_its_time_and_then_acquired"],
        Bug::ErrorDropped => &["a_failed_key_answers_with_its_error", "a_dead_key_answers_with_its_attempts_and_error"],
        Bug::DeadIsGranted => &["a_dead_lettered_run_is_not_granted_again"],
        Bug::FailedIsGranted => &["a_failed_key_answers_with_its_error"],
        Bug::AttemptCountedAtRelease => {
            &["attempts_are_counted_over_vacancy_and_takeover", "an_expired_lease_without_attempts_left_is_dead"]
        }
        Bug::RefundCounts => &["a_refunded_attempt_is_not_counted"],
        Bug::RefundLeavesTrace => &["a_refund_of_the_first_attempt_leaves_no_record"],
        Bug::RefundHidesTakeover => &["a_refunded_takeover_is_visible_to_the_next_run"],
        Bug::NoLimitIsTen => &["without_a_limit_no_key_becomes_dead"],
        Bug::BuriesTheLiving => &["a_live_lease_on_its_last_attempt_is_in_flight"],
        Bug::FingerprintFirst => &[
            "a_vacant_key_takes_the_new_fingerprint",
            "a_dead_key_is_dead_for_every_payload",
            "a_delayed_key_is_delayed_for_every_payload",
        ],
        Bug::FingerprintIgnored => &["another_payload_is_a_mismatch_while_the_key_is_held_or_settled"],
        Bug::NoFingerprintDiffers => &["an_equal_or_unknown_fingerprint_is_no_mismatch"],
        Bug::FingerprintStays => {
            &["a_vacant_key_takes_the_new_fingerprint", "an_expired_lease_takes_the_new_fingerprint"]
        }
        Bug::FencingStartsAnew => {
            &["fencing_rises_over_every_kind_of_release", "fencing_rises_after_an_expired_record"]
        }
        Bug::TakeoverKeepsNumber => &["fencing_rises_over_takeover"],
        Bug::DeletionForgetsNumber => &["fencing_rises_within_one_instant"],
        Bug::PurgeForgetsNumber => &[
            "fencing_rises_over_purge_within_one_instant",
            "fencing_rises_over_expiry_when_tokens_are_ahead_of_the_clock",
        ],
        Bug::ForgettingForgetsNumber => &["fencing_rises_over_deletion_by_an_operator"],
        Bug::FencingInNanos => &["fencing_tokens_fit_the_numbers_of_every_script_language"],
        Bug::SecondsRounded => &["a_lease_ends_to_the_ms", "a_retention_ends_to_the_ms", "a_delay_ends_to_the_ms"],
        Bug::LateEnd => &["a_lease_ends_to_the_ms", "a_failure_retention_ends_to_the_ms"],
        Bug::PeekShowsExpired => &[
            "a_consumed_key_is_kept_for_its_retention_and_no_longer",
            "an_orphaned_key_is_absent_after_lease_and_retention",
        ],
        Bug::RenewalShortens => &["a_renewal_never_shortens"],
        Bug::RenewalDoesNothing => &["a_renewal_counts_from_now", "a_renewed_lease_ends_to_the_ms"],
        Bug::RenewalForgetsMemory => &["a_renewed_key_keeps_its_retention"],
        Bug::TenYearsAtMost => &["an_unlimited_retention_does_not_end"],
        Bug::MemoryEndsEarly => {
            &["a_failed_key_is_kept_for_its_retention_and_no_longer", "a_failure_retention_ends_to_the_ms"]
        }
        Bug::RetentionIsTheLease => &["a_late_owner_may_settle_before_a_takeover", "each_grant_has_a_cause"],
        Bug::ClockReadOnce => &["the_store_uses_its_configured_clock", "a_lease_ends_to_the_ms"],
        Bug::ClientClock => &[
            "a_client_with_a_wrong_clock_sets_durations_of_the_same_length",
            "a_client_with_a_wrong_clock_sees_each_expiry_in_time",
        ],
        Bug::TakeoverByClientClock => &["a_client_with_a_wrong_clock_takes_over_neither_early_nor_late"],
        Bug::AnswersFromMemory => {
            &["a_connection_sees_the_writes_of_another_one", "a_key_held_over_one_connection_is_guarded_over_the_other"]
        }
        Bug::WakesItselfOnly => &["watchers_are_woken_over_another_connection"],
        Bug::RefusalIsDone => {
            &["a_claim_with_a_lost_request_is_granted_on_retry", "a_completion_with_a_lost_request_is_done_on_retry"]
        }
        Bug::LostReplyIsNotApplied | Bug::RefusalIsAmbiguous => {
            &["a_lost_response_is_ambiguous_and_a_refused_call_is_not"]
        }
        Bug::CaseFolded => &["stored_keys_that_differ_only_by_case_are_separate"],
        Bug::KeyJoined => &["keys_with_an_ambiguous_boundary_of_name_and_hash_are_separate"],
        Bug::KeyCutOff => &["keys_that_look_alike_are_separate", "tenants_scenes_and_scopes_are_separate"],
        Bug::HashHalved => &["keys_that_differ_in_one_byte_are_separate"],
        Bug::EmptyIsNone => &["a_consumed_key_answers_with_its_value"],
        Bug::TextEndsAtNul => &["hostile_texts_and_values_are_read_back_unchanged"],
        Bug::ValueCutOff => &["a_large_value_is_read_back_whole"],
        Bug::UnreadableIsAbsent => {
            &["a_damaged_record_is_corrupt_for_each_operation", "an_unreadable_record_is_never_overwritten_or_deleted"]
        }
        Bug::UnreadableIsDeleted => &["an_unreadable_record_is_never_overwritten_or_deleted"],
        Bug::VersionIgnored => &["a_record_of_a_newer_version_is_refused_by_each_operation"],
        Bug::ForeignIsCorrupt => &["a_foreign_value_is_refused_by_each_operation"],
        Bug::UnreadableIsMismatch => &["an_unreadable_record_is_not_a_mismatch"],
        Bug::PurgeTakesUnreadable => &["a_purge_keeps_unreadable_records"],
        Bug::SearchEndsAtUnreadable | Bug::SearchHidesUnreadable => &["a_search_reports_unreadable_records"],
        Bug::BatchFailsAsAWhole => &["a_batch_refuses_only_unreadable_records"],
        Bug::AbilityComesAndGoes => &["reported_capabilities_work"],
        Bug::BatchInDisorder => &["a_batch_answers_like_separate_requests"],
        Bug::SearchShowsExpired | Bug::SearchRepeats => &["a_search_lists_each_live_key_once"],
        Bug::SearchIgnoresStates | Bug::SearchIgnoresAges => &["a_search_selects_by_every_condition_of_its_filter"],
        Bug::SearchIgnoresBudget => &["a_search_stays_within_its_limits"],
        Bug::SearchReturnsResults => &["a_search_returns_no_results"],
        Bug::SearchCountsRecords => &["a_search_resumes_after_inserts_and_deletions"],
        Bug::PurgeTakesOrphans | Bug::PurgeTakesTheLiving | Bug::PurgeWithoutBound => {
            &["a_purge_is_bounded_and_harmless"]
        }
        Bug::ForgetAnyNumber => &["a_settled_key_is_deleted_only_with_its_fencing_token"],
        Bug::ForgetHeld => &["a_held_key_is_deleted_only_by_force"],
        Bug::ReleaseWakesNobody => &["watchers_are_woken_by_completion_and_release"],
        Bug::StepNotedForAnybody => &["only_the_owner_reads_and_records_steps", "a_superseded_owner_records_no_step"],
        Bug::StepNotedWithoutCompare => &["a_takeover_sees_each_recorded_step"],
        Bug::LastStepStands => &["a_step_never_returns_to_an_earlier_state"],
        Bug::StepsByName => &["steps_are_read_back_unchanged"],
        Bug::StepsEndWithTheGrant => &["steps_survive_release_and_takeover"],
        Bug::StepsOutliveTheRecord => &["a_new_record_of_a_key_has_no_steps"],
        Bug::StepsOfAllKeys => &["steps_of_two_keys_are_separate"],
        Bug::LineWithoutCompare => &["order_state_is_written_only_with_its_current_version"],
        Bug::LineComparedFirst => &["racing_changes_of_one_order_state_are_not_lost"],
        Bug::LineOfNothing => &["an_unknown_stream_has_no_order_state"],
        Bug::LinesOfAllStreams => &["order_states_of_two_streams_are_separate"],
        Bug::LineCutAtZero => &["order_state_of_any_bytes_is_read_back_unchanged"],
        Bug::LineInThePlaceOfARecord => &["order_state_is_not_a_record"],
        Bug::PurgeTakesLines => &["order_state_survives_a_purge_until_it_expires"],
        other => panic!("{other:?} is new: which laws are about it?"),
    }
}

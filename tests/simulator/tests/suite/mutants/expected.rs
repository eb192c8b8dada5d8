//! The laws about each bug.
use idempotent_simulator::mutants::Bug;

/// Returns the laws that must detect the bug, sorted as in [`Bug`]. The bug may break further laws.
pub(crate) fn laws_about(bug: Bug) -> &'static [&'static str] {
    match bug {
        Bug::NonAtomicClaim => {
            &["of_racing_claims_one_is_acquired", "holders_in_turn_never_overlap_and_their_numbers_rise"]
        }
        Bug::TakeoverWithoutCompare => {
            &["of_racing_takeovers_one_is_acquired", "of_a_late_completion_and_a_takeover_one_wins"]
        }
        Bug::SettlingWithoutCompare => {
            &["of_a_late_completion_and_a_takeover_one_wins", "of_a_late_renewal_or_release_and_a_takeover_one_wins"]
        }
        Bug::ClaimInTwoWrites => &["a_call_dropped_half_way_is_settled_by_asking_again"],
        Bug::CompletionByDeleteAndInsert => &["racing_copies_of_one_completion_are_all_done"],
        Bug::AtomicPerConnection => &["of_claims_racing_over_two_connections_one_is_acquired"],
        Bug::UnconditionalDelete => {
            &["nobody_but_the_owner_changes_a_held_key", "a_consumed_key_is_not_undone_by_its_owner"]
        }
        Bug::UnconditionalFlip => {
            &["nobody_but_the_owner_changes_a_held_key", "a_superseded_owner_is_told_what_is_there_and_changes_nothing"]
        }
        Bug::TokenWithoutNumber => &["a_superseded_grant_stays_superseded_though_its_claim_comes_again"],
        Bug::TokenWithoutState => &["a_consumed_key_is_not_undone_by_its_owner"],
        Bug::RenewWithoutOwner => &["nobody_but_the_owner_changes_a_held_key"],
        Bug::LateOwnerRefused => &["a_late_owner_may_settle_while_nobody_took_over"],
        Bug::LastResultStands => &["a_completion_repeated_by_its_owner_is_done_and_the_first_result_stands"],
        Bug::RepeatedReleaseIsDone => &["a_release_repeated_by_its_owner_is_lost"],
        Bug::PutAfterVanish => &["a_key_that_has_gone_is_not_brought_back"],
        Bug::RepetitionCounts => &[
            "the_same_owner_claiming_again_gets_the_same_grant",
            "a_claim_whose_reply_was_lost_is_granted_the_same_again",
        ],
        Bug::RepetitionIsInFlight => &[
            "the_same_owner_claiming_again_gets_the_same_grant",
            "a_claim_whose_reply_was_lost_is_granted_the_same_again",
        ],
        Bug::RepetitionTakesOver => &["the_same_owner_may_claim_again_after_its_lease_while_nobody_took_over"],
        Bug::EarlyTakeover => &["a_lease_ends_to_the_ms", "an_owner_has_its_lease_to_the_last_ms"],
        Bug::ExpiryIgnored => &["a_lease_holds_until_its_end_and_may_be_taken_over_from_then_on"],
        Bug::ParkIgnored => &["an_expired_lease_is_parked_if_asked"],
        Bug::DelayIgnored => &["a_vacant_key_is_delayed_until_its_time_and_then_acquired"],
        Bug::ErrorDropped => &["a_failed_key_answers_with_its_error", "a_dead_key_answers_with_its_attempts_and_error"],
        Bug::DeadIsGranted => &["a_buried_run_is_not_granted_again"],
        Bug::FailedIsGranted => &["a_failed_key_answers_with_its_error"],
        Bug::AttemptCountedAtRelease => {
            &["attempts_are_counted_over_vacancy_and_takeover", "an_expired_lease_out_of_attempts_is_buried"]
        }
        Bug::RefundCounts => &["a_refunded_attempt_is_not_counted"],
        Bug::RefundLeavesTrace => &["a_refund_with_nothing_to_remember_leaves_no_trace"],
        Bug::RefundHidesTakeover => &["a_refunded_takeover_is_told_to_the_next_run"],
        Bug::NoLimitIsTen => &["without_a_limit_nothing_is_buried"],
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
            &["fencing_rises_over_every_kind_of_release", "fencing_rises_when_a_record_was_past_its_time"]
        }
        Bug::TakeoverKeepsNumber => &["fencing_rises_over_takeover"],
        Bug::DeletionForgetsNumber => &["fencing_rises_within_one_instant"],
        Bug::PurgeForgetsNumber => {
            &["fencing_rises_over_purge_within_one_instant", "fencing_rises_over_expiry_when_it_ran_ahead_of_the_clock"]
        }
        Bug::ForgettingForgetsNumber => &["fencing_rises_over_forgetting"],
        Bug::FencingInNanos => &["fencing_is_a_number_every_script_language_can_hold"],
        Bug::SecondsRounded => &["a_lease_ends_to_the_ms", "a_retention_ends_to_the_ms", "a_delay_ends_to_the_ms"],
        Bug::LateEnd => &["a_lease_ends_to_the_ms", "a_memory_ends_to_the_ms"],
        Bug::PeekShowsExpired => &[
            "a_consumed_key_is_remembered_for_its_retention_and_no_longer",
            "an_orphaned_key_counts_as_absent_past_lease_and_memory",
        ],
        Bug::RenewalShortens => &["a_renewal_never_shortens"],
        Bug::RenewalDoesNothing => &["a_renewal_counts_from_now", "a_renewed_lease_ends_to_the_ms"],
        Bug::RenewalForgetsMemory => &["a_renewed_key_keeps_its_memory"],
        Bug::TenYearsAtMost => &["a_retention_for_ever_does_not_end"],
        Bug::MemoryEndsEarly => &["a_failed_key_is_remembered_for_its_memory_and_no_longer", "a_memory_ends_to_the_ms"],
        Bug::RetentionIsTheLease => {
            &["a_late_owner_may_settle_while_nobody_took_over", "no_run_is_granted_without_a_cause"]
        }
        Bug::ClockReadOnce => &["the_store_lives_by_the_clock_it_was_given", "a_lease_ends_to_the_ms"],
        Bug::ClientClock => &[
            "a_client_with_a_wrong_clock_gives_spans_of_the_same_length",
            "a_client_with_a_wrong_clock_sees_no_end_early_or_late",
        ],
        Bug::TakeoverByClientClock => &["a_client_with_a_wrong_clock_takes_over_neither_early_nor_late"],
        Bug::AnswersFromMemory => {
            &["what_one_connection_wrote_the_other_sees", "a_key_held_over_one_connection_is_guarded_over_the_other"]
        }
        Bug::WakesItselfOnly => &["watchers_are_woken_over_another_connection"],
        Bug::RefusalIsDone => &[
            "a_claim_that_never_arrived_is_granted_at_the_next_try",
            "a_completion_that_never_arrived_is_done_at_the_next_try",
        ],
        Bug::LostReplyIsNotApplied | Bug::RefusalIsAmbiguous => {
            &["a_lost_reply_is_ambiguous_and_a_refused_call_is_not"]
        }
        Bug::CaseFolded => &["stored_keys_that_differ_only_by_case_are_kept_apart"],
        Bug::KeyJoined => &["keys_whose_name_and_hash_run_together_are_kept_apart"],
        Bug::KeyCutOff => &["keys_that_look_alike_are_kept_apart", "tenants_scenes_and_scopes_are_kept_apart"],
        Bug::HashHalved => &["keys_that_differ_in_one_place_are_kept_apart"],
        Bug::EmptyIsNone => &["a_consumed_key_answers_with_its_value"],
        Bug::TextEndsAtNul => &["hostile_texts_and_values_come_back_as_they_were"],
        Bug::ValueCutOff => &["a_large_value_comes_back_whole"],
        Bug::UnreadableIsAbsent => {
            &["a_damaged_record_is_corrupt_to_every_step", "what_cannot_be_read_is_never_overwritten_or_deleted"]
        }
        Bug::UnreadableIsDeleted => &["what_cannot_be_read_is_never_overwritten_or_deleted"],
        Bug::VersionIgnored => &["a_record_of_a_newer_version_is_refused_by_every_step"],
        Bug::ForeignIsCorrupt => &["a_foreign_value_is_refused_by_every_step"],
        Bug::UnreadableIsMismatch => &["what_cannot_be_read_is_no_mismatch"],
        Bug::PurgeTakesUnreadable => &["a_purge_leaves_what_it_cannot_read"],
        Bug::BrowseEndsAtUnreadable => &["browsing_leaves_what_it_cannot_read"],
        Bug::BatchFailsAsAWhole => &["a_batch_refuses_only_what_it_cannot_read"],
        Bug::AbilityComesAndGoes => &["reported_capabilities_work"],
        Bug::BatchInDisorder => &["a_batch_answers_as_if_each_request_had_come_alone"],
        Bug::BrowseShowsExpired | Bug::BrowseRepeats => &["browsing_lists_each_live_key_once"],
        Bug::PurgeTakesOrphans | Bug::PurgeTakesTheLiving | Bug::PurgeWithoutBound => {
            &["a_purge_is_bounded_and_harmless"]
        }
        Bug::ForgetAnyNumber => &["a_settled_key_can_be_forgotten_by_its_number_only"],
        Bug::ForgetHeld => &["a_held_key_is_forgotten_by_force_only"],
        Bug::ReleaseWakesNobody => &["watchers_are_woken_by_completion_and_release"],
        Bug::StepNotedForAnybody => &["nobody_but_the_owner_reads_or_notes_steps", "a_superseded_owner_notes_no_step"],
        Bug::StepNotedWithoutCompare => &["of_a_late_note_and_a_takeover_nothing_noted_is_missed"],
        Bug::LastStepStands => &["a_step_only_goes_on"],
        Bug::StepsByName => &["steps_come_back_as_they_were_noted"],
        Bug::StepsEndWithTheGrant => &["steps_outlive_release_and_takeover"],
        Bug::StepsOutliveTheRecord => &["a_record_that_begins_anew_has_no_steps"],
        Bug::StepsOfAllKeys => &["steps_of_two_keys_are_kept_apart"],
        Bug::LineWithoutCompare => &["a_line_is_put_back_only_by_who_saw_it_as_it_is"],
        Bug::LineComparedFirst => &["of_racing_changes_of_one_line_none_is_lost"],
        Bug::LineOfNothing => &["a_stream_nobody_spoke_of_has_no_line"],
        Bug::LinesOfAllStreams => &["lines_of_two_streams_are_kept_apart"],
        Bug::LineCutAtZero => &["a_line_of_any_bytes_comes_back_as_it_was"],
        Bug::LineInThePlaceOfARecord => &["a_line_is_no_record"],
        Bug::PurgeTakesLines => &["a_line_outlives_a_purge_until_its_time_is_over"],
        other => panic!("{other:?} is new: which laws are about it?"),
    }
}

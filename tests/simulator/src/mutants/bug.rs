//! The bugs of stores, and the laws about each.

macro_rules! bugs {
    ($($(#[$doc:meta])+ $bug:ident: $($law:ident)+;)+) => {
        /// A bug of a [`Mutant`](super::Mutant).
        ///
        /// Each is a mistake that a store once had, or could have.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum Bug {
            $($(#[$doc])+ $bug,)+
        }

        impl Bug {
            /// All bugs.
            pub const ALL: &'static [Self] = &[$(Self::$bug,)+];

            /// Returns the laws that must detect the bug. The bug may break further laws.
            #[must_use]
            pub const fn laws(self) -> &'static [&'static str] {
                match self {
                    $(Self::$bug => &[$(stringify!($law)),+],)+
                }
            }
        }
    };
}

bugs! {
    // Atomicity.
    /// Non-atomic claim: the store reads, lets others in, and writes.
    NonAtomicClaim: one_of_several_racing_claims_is_acquired successive_holders_never_overlap_and_their_tokens_rise;
    /// A takeover reads that the lease has expired, lets others in, and writes without comparing.
    TakeoverWithoutCompare: one_of_several_racing_takeovers_is_acquired either_a_late_completion_or_a_takeover_wins;
    /// A late renewal, completion or release reads that it is allowed, lets others in, and writes without comparing.
    SettlingWithoutCompare:
        either_a_late_completion_or_a_takeover_wins
        either_a_late_renewal_or_release_or_a_takeover_wins;
    /// A claim counts the attempt, lets others in, and then writes the owner. If it is dropped in between, the attempt
    /// is counted.
    ClaimInTwoWrites: a_dropped_call_is_settled_by_its_repetition;
    /// A completion removes the record, lets others in, and inserts a new record.
    CompletionByDeleteAndInsert: racing_copies_of_one_completion_are_all_done;
    /// A claim is atomic only on its own connection: the lock belongs to the process, not to the records.
    AtomicPerConnection: one_of_several_claims_over_two_connections_is_acquired;

    // Guards.
    /// Unconditional delete: a release deletes for any caller, whatever the record.
    UnconditionalDelete: only_the_owner_changes_a_held_key a_consumed_key_is_not_undone_by_its_owner;
    /// Unconditional completion: a completion writes "consumed" for any caller, whatever the record.
    UnconditionalFlip:
        only_the_owner_changes_a_held_key
        a_superseded_owner_receives_the_current_state_and_changes_nothing;
    /// The owner token is mistaken for the grant: the fencing token is not compared.
    TokenWithoutNumber: a_superseded_grant_stays_superseded_after_a_repeated_claim;
    /// A release compares the owner token but not the state: a consumed record is undone.
    TokenWithoutState: a_consumed_key_is_not_undone_by_its_owner;
    /// A renewal succeeds for any caller.
    RenewWithoutOwner: only_the_owner_changes_a_held_key;
    /// An owner with an expired lease cannot settle, although no other owner took over.
    LateOwnerRefused: a_late_owner_may_settle_before_a_takeover;
    /// The last result is stored, not the first.
    LastResultStands: a_completion_repeated_by_its_owner_is_done_and_keeps_the_first_result;
    /// A repeated release is applied again.
    RepeatedReleaseIsDone: a_release_repeated_by_its_owner_is_lost;
    /// A renewal or completion writes a record that no longer exists.
    PutAfterVanish: a_deleted_key_is_not_restored;

    // Claims.
    /// The same owner that claims again after a lost answer is counted again.
    RepetitionCounts:
        the_same_owner_claiming_again_gets_the_same_grant
        a_claim_with_a_lost_response_receives_the_same_grant_on_retry;
    /// The same owner that claims again after a lost answer is reported as in flight.
    RepetitionIsInFlight:
        the_same_owner_claiming_again_gets_the_same_grant
        a_claim_with_a_lost_response_receives_the_same_grant_on_retry;
    /// The same owner that claims again after its lease takes over from itself.
    RepetitionTakesOver: the_same_owner_may_claim_again_after_its_lease_before_a_takeover;
    /// A lease can be taken over a ms early.
    EarlyTakeover: a_lease_ends_to_the_ms an_owner_has_its_lease_to_the_last_ms;
    /// The expiry of a lease is ignored: its key stays in flight.
    ExpiryIgnored: a_lease_may_be_taken_over_from_its_end;
    /// A claim takes over although it requests parking.
    ParkIgnored: an_expired_lease_is_parked_if_asked;
    /// The delay of a vacant record is ignored.
    DelayIgnored: a_vacant_key_is_delayed_until_its_time_and_then_acquired;
    /// The error of the last run is dropped.
    ErrorDropped: a_failed_key_answers_with_its_error a_dead_key_answers_with_its_attempts_and_error;
    /// A dead key is granted while its attempts are below the limit.
    DeadIsGranted: a_dead_lettered_run_is_not_granted_again;
    /// A failed key is granted again.
    FailedIsGranted: a_failed_key_answers_with_its_error;

    // Attempts.
    /// Runs are counted when they end, not when they are granted: a crash is not counted.
    AttemptCountedAtRelease:
        attempts_are_counted_over_vacancy_and_takeover
        an_expired_lease_without_attempts_left_is_dead;
    /// A refunded run is still counted.
    RefundCounts: a_refunded_attempt_is_not_counted;
    /// A refund leaves a vacant record without a reason.
    RefundLeavesTrace: a_refund_of_the_first_attempt_leaves_no_record;
    /// A refund drops the takeover of its run.
    RefundHidesTakeover: a_refunded_takeover_is_visible_to_the_next_run;
    /// No limit is mistaken for a limit of ten.
    NoLimitIsTen: without_a_limit_no_key_becomes_dead;
    /// Attempts are compared before the lease: a live owner with the last attempt is buried.
    BuriesTheLiving: a_live_lease_on_its_last_attempt_is_in_flight;

    // Payloads.
    /// The fingerprint is compared before the state.
    FingerprintFirst:
        a_vacant_key_takes_the_new_fingerprint
        a_dead_key_is_dead_for_every_payload
        a_delayed_key_is_delayed_for_every_payload;
    /// The fingerprint is never compared.
    FingerprintIgnored: another_payload_is_a_mismatch_while_the_key_is_held_or_settled;
    /// A payload without a fingerprint is mistaken for another payload.
    NoFingerprintDiffers: an_equal_or_unknown_fingerprint_is_no_mismatch;
    /// The fingerprint of the first claim is never replaced.
    FingerprintStays: a_vacant_key_takes_the_new_fingerprint an_expired_lease_takes_the_new_fingerprint;

    // Numbers.
    /// The fencing token restarts with each record.
    FencingStartsAnew: fencing_rises_over_every_kind_of_release fencing_rises_after_an_expired_record;
    /// A takeover keeps the fencing token.
    TakeoverKeepsNumber: fencing_rises_over_takeover;
    /// A deletion forgets the fencing token before the clock has passed it.
    DeletionForgetsNumber: fencing_rises_within_one_instant;
    /// A purge forgets the fencing token before the clock has passed it.
    PurgeForgetsNumber:
        fencing_rises_over_purge_within_one_instant
        fencing_rises_over_expiry_when_tokens_are_ahead_of_the_clock;
    /// Forgetting restarts the fencing token.
    ForgettingForgetsNumber: fencing_rises_over_deletion_by_an_operator;
    /// The fencing token is in ns: too large for a double.
    FencingInNanos: fencing_tokens_fit_the_numbers_of_every_script_language;

    // Time.
    /// Times are truncated to whole seconds.
    SecondsRounded: a_lease_ends_to_the_ms a_retention_ends_to_the_ms a_delay_ends_to_the_ms;
    /// A lease ends a ms late.
    LateEnd: a_lease_ends_to_the_ms a_failure_retention_ends_to_the_ms;
    /// A peek returns an expired record.
    PeekShowsExpired:
        a_consumed_key_is_kept_for_its_retention_and_no_longer
        an_orphaned_key_is_absent_after_lease_and_retention;
    /// A renewal can shorten a lease.
    RenewalShortens: a_renewal_never_shortens;
    /// A renewal is confirmed but not applied.
    RenewalDoesNothing: a_renewal_counts_from_now a_renewed_lease_ends_to_the_ms;
    /// A renewed record is forgotten when its lease expires.
    RenewalForgetsMemory: a_renewed_key_keeps_its_retention;
    /// No record lives longer than ten years.
    TenYearsAtMost: an_unlimited_retention_does_not_end;
    /// A record without a result expires a ms early.
    MemoryEndsEarly: a_failed_key_is_kept_for_its_retention_and_no_longer a_failure_retention_ends_to_the_ms;
    /// A consumed record expires when its lease would have expired.
    RetentionIsTheLease: a_late_owner_may_settle_before_a_takeover each_grant_has_a_cause;
    /// The clock is read only once, when the store is opened.
    ClockReadOnce: the_store_uses_its_configured_clock a_lease_ends_to_the_ms;
    /// All times are judged by the clock of the calling client.
    ClientClock:
        a_client_with_a_wrong_clock_sets_durations_of_the_same_length
        a_client_with_a_wrong_clock_sees_each_expiry_in_time;
    /// A takeover is judged by the clock of the calling client.
    TakeoverByClientClock: a_client_with_a_wrong_clock_takes_over_neither_early_nor_late;

    // Connections and replies.
    /// A connection answers from a cache.
    AnswersFromMemory:
        a_connection_sees_the_writes_of_another_one
        a_key_held_over_one_connection_is_guarded_over_the_other;
    /// A completion or release only wakes waiters of its own connection.
    WakesItselfOnly: watchers_are_woken_over_another_connection;
    /// A refused or lost request is still applied.
    RefusalIsDone: a_claim_with_a_lost_request_is_granted_on_retry a_completion_with_a_lost_request_is_done_on_retry;
    /// A lost reply is reported as "not applied".
    LostReplyIsNotApplied: a_lost_response_is_ambiguous_and_a_refused_call_is_not;
    /// A refused call is reported as "may have been applied".
    RefusalIsAmbiguous: a_lost_response_is_ambiguous_and_a_refused_call_is_not;

    // Keys and values.
    /// Keys are compared as text, ignoring case.
    CaseFolded: stored_keys_that_differ_only_by_case_are_separate;
    /// The readable part of a key and its hash are joined without lengths or separators.
    KeyJoined: keys_with_an_ambiguous_boundary_of_name_and_hash_are_separate;
    /// A key is truncated after its scope: all keys of a scope are equal.
    KeyCutOff: keys_that_look_alike_are_separate tenants_scenes_and_scopes_are_separate;
    /// Only half of a key's hash is compared.
    HashHalved: keys_that_differ_in_one_byte_are_separate;
    /// An empty result is stored as none.
    EmptyIsNone: a_consumed_key_answers_with_its_value;
    /// Texts end at the first NUL.
    TextEndsAtNul: hostile_texts_and_values_are_read_back_unchanged;
    /// A value is truncated after 64 KiB.
    ValueCutOff: a_large_value_is_read_back_whole;

    // Records that cannot be read.
    /// An unreadable record counts as absent, and is overwritten.
    UnreadableIsAbsent:
        a_damaged_record_is_corrupt_for_each_operation
        an_unreadable_record_is_never_overwritten_or_deleted;
    /// An unreadable record is refused, and deleted.
    UnreadableIsDeleted: an_unreadable_record_is_never_overwritten_or_deleted;
    /// The version of a record is ignored.
    VersionIgnored: a_record_of_a_newer_version_is_refused_by_each_operation;
    /// A foreign value is reported as a damaged record.
    ForeignIsCorrupt: a_foreign_value_is_refused_by_each_operation;
    /// An unreadable record is reported as a mismatch if the claim has a fingerprint.
    UnreadableIsMismatch: an_unreadable_record_is_not_a_mismatch;
    /// A purge removes unreadable records.
    PurgeTakesUnreadable: a_purge_keeps_unreadable_records;
    /// A search ends silently at an unreadable record.
    SearchEndsAtUnreadable: a_search_reports_unreadable_records;
    /// A search skips unreadable records.
    SearchHidesUnreadable: a_search_reports_unreadable_records;
    /// A batch fails as a whole because of one unreadable record.
    BatchFailsAsAWhole: a_batch_refuses_only_unreadable_records;

    // Capabilities.
    /// A capability is reported only sometimes.
    AbilityComesAndGoes: reported_capabilities_work;
    /// A batch returns its answers in another order.
    BatchInDisorder: a_batch_answers_like_separate_requests;
    /// A search lists expired records.
    SearchShowsExpired: a_search_lists_each_live_key_once;
    /// A page begins with the last entry of the previous page.
    SearchRepeats: a_search_lists_each_live_key_once;
    /// A search returns records in any state.
    SearchIgnoresStates: a_search_selects_by_every_condition_of_its_filter;
    /// A search returns records of any age.
    SearchIgnoresAges: a_search_selects_by_every_condition_of_its_filter;
    /// A search examines all records.
    SearchIgnoresBudget: a_search_stays_within_its_limits;
    /// A search returns the results of consumed records.
    SearchReturnsResults: a_search_returns_no_results;
    /// A cursor is the number of the records before it.
    SearchCountsRecords: a_search_resumes_after_inserts_and_deletions;
    /// A purge mistakes the expiry of the lease for that of the record.
    PurgeTakesOrphans: a_purge_is_bounded_and_harmless;
    /// A purge removes settled records that are still valid.
    PurgeTakesTheLiving: a_purge_is_bounded_and_harmless;
    /// A purge ignores its limit.
    PurgeWithoutBound: a_purge_is_bounded_and_harmless;
    /// Forgetting ignores the fencing token.
    ForgetAnyNumber: a_settled_key_is_deleted_only_with_its_fencing_token;
    /// A held key is forgotten without force.
    ForgetHeld: a_held_key_is_deleted_only_by_force;
    /// Waiters are woken only by a completion.
    ReleaseWakesNobody: watchers_are_woken_by_completion_and_release;

    // Steps.
    /// A step is recorded for any caller.
    StepNotedForAnybody: only_the_owner_reads_and_records_steps a_superseded_owner_records_no_step;
    /// A step is recorded by checking the owner, letting others in, and writing without comparing.
    StepNotedWithoutCompare: a_takeover_sees_each_recorded_step;
    /// The last record of a step replaces earlier ones, whatever its state.
    LastStepStands: a_step_never_returns_to_an_earlier_state;
    /// Steps are returned in the order of their names.
    StepsByName: steps_are_read_back_unchanged;
    /// Steps end with the grant under which they were recorded.
    StepsEndWithTheGrant: steps_survive_release_and_takeover;
    /// Steps stay when their record is deleted.
    StepsOutliveTheRecord: a_new_record_of_a_key_has_no_steps;
    /// Steps of all keys are stored together.
    StepsOfAllKeys: steps_of_two_keys_are_separate;

    // Order tables.
    /// An order table is written without comparing.
    LineWithoutCompare: order_state_is_written_only_with_its_current_version;
    /// An order table is compared, others are let in, and it is written without comparing.
    LineComparedFirst: racing_changes_of_one_order_state_are_not_lost;
    /// An unknown stream has an empty order table.
    LineOfNothing: an_unknown_stream_has_no_order_state;
    /// Order tables of all streams are stored together.
    LinesOfAllStreams: order_states_of_two_streams_are_separate;
    /// An order table ends at its first zero byte.
    LineCutAtZero: order_state_of_any_bytes_is_read_back_unchanged;
    /// An order table is stored under the key of a record.
    LineInThePlaceOfARecord: order_state_is_not_a_record;
    /// A purge removes order tables before they expire.
    PurgeTakesLines: order_state_survives_a_purge_until_it_expires;
}

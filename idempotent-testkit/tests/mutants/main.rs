//! The kit must fail a store that is wrong: each bug breaks the laws that are about it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use idempotent_testkit::conformance::{Threads, hold, laws};
use idempotent_testkit::mutants::{Bug, Mutant};
use idempotent_testkit::{Subject, VirtualClock};

fn mutant(bug: impl Into<Option<Bug>>) -> Subject {
    let clock = VirtualClock::new();
    Subject::new(Mutant::new(bug.into(), Arc::new(clock.clone()))).on_clock(clock)
}
idempotent_testkit::conformance!(a_mutant_without_a_bug_keeps_every_law, mutant(None));

/// What the law says about the mutant, if it is broken.
fn broken(bug: Bug, threads: Threads, law: impl AsyncFnOnce(&Subject)) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| hold(threads, || mutant(bug), law))).err()?;
    Some(panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

macro_rules! caught {
    ($($name:ident: $bug:ident by $($group:ident::$law:ident)+;)+) => {$(
        #[test]
        fn $name() {
            $(assert!(
                broken(Bug::$bug, Threads::One, laws::$group::$law).is_some(),
                "{:?} was not caught by {}", Bug::$bug, stringify!($law)
            );)+
            let law = laws::equality::random_operations_are_answered_as_the_protocol_answers_them;
            let found = broken(Bug::$bug, Threads::One, law);
            assert_eq!(found.is_some(), seen_by_one_after_the_other(Bug::$bug), "{found:?}");
        }
    )+};
}

/// Operations one after the other show neither look-alike keys nor empty results, and neither list nor wait.
fn seen_by_one_after_the_other(bug: Bug) -> bool {
    !matches!(
        bug,
        Bug::CaseFolded
            | Bug::EmptyIsNone
            | Bug::BatchInDisorder
            | Bug::BrowseShowsExpired
            | Bug::BrowseRepeats
            | Bug::PurgeWithoutBound
            | Bug::ReleaseWakesNobody
    )
}

caught! {
    an_unconditional_flip_is_caught: UnconditionalFlip by
        owners::nobody_but_the_owner_changes_a_held_key
        owners::a_superseded_owner_is_told_what_is_there_and_changes_nothing;
    a_token_without_its_number_is_caught: TokenWithoutNumber by
        owners::a_superseded_grant_stays_superseded_though_its_claim_comes_again;
    a_token_without_its_state_is_caught: TokenWithoutState by
        owners::a_consumed_key_is_not_undone_by_its_owner;
    a_fencing_number_that_starts_anew_is_caught: FencingStartsAnew by
        fencing::fencing_rises_over_every_kind_of_release
        fencing::fencing_rises_when_a_record_was_past_its_time;
    a_repetition_that_counts_is_caught: RepetitionCounts by
        claims::the_same_owner_claiming_again_gets_the_same_grant;
    an_early_takeover_is_caught: EarlyTakeover by
        claims::a_lease_holds_until_its_end_and_may_be_taken_over_from_then_on;
    a_renewal_that_shortens_is_caught: RenewalShortens by
        owners::a_renewal_never_shortens;
    a_fingerprint_compared_first_is_caught: FingerprintFirst by
        payloads::a_vacant_key_takes_the_new_fingerprint
        payloads::an_expired_lease_takes_the_new_fingerprint
        payloads::a_dead_key_is_dead_for_every_payload;
    a_peek_that_shows_what_is_past_its_time_is_caught: PeekShowsExpired by
        time::a_consumed_key_is_remembered_for_its_retention_and_no_longer
        time::an_orphaned_key_counts_as_absent_past_lease_and_memory;
    folded_case_is_caught: CaseFolded by
        keys::stored_keys_that_differ_only_by_case_are_kept_apart;
    a_last_result_that_stands_is_caught: LastResultStands by
        owners::a_completion_repeated_by_its_owner_is_done_and_the_first_result_stands;
    an_empty_result_kept_as_none_is_caught: EmptyIsNone by
        claims::a_consumed_key_answers_with_its_value;
    a_batch_in_disorder_is_caught: BatchInDisorder by
        abilities::a_batch_answers_as_if_each_request_had_come_alone;
    browsing_what_is_past_its_time_is_caught: BrowseShowsExpired by
        abilities::browsing_lists_each_live_key_once;
    browsing_that_repeats_is_caught: BrowseRepeats by
        abilities::browsing_lists_each_live_key_once;
    a_purge_of_orphans_is_caught: PurgeTakesOrphans by
        abilities::a_purge_is_bounded_and_harmless;
    a_purge_without_bound_is_caught: PurgeWithoutBound by
        abilities::a_purge_is_bounded_and_harmless;
    forgetting_by_any_number_is_caught: ForgetAnyNumber by
        abilities::a_settled_key_can_be_forgotten_by_its_number_only;
    forgetting_a_held_key_is_caught: ForgetHeld by
        abilities::a_held_key_is_forgotten_by_force_only;
    a_release_that_wakes_nobody_is_caught: ReleaseWakesNobody by
        abilities::watchers_are_woken_by_completion_and_release;
}

#[test]
fn a_non_atomic_claim_is_caught() {
    let law = laws::races::of_racing_claims_one_is_acquired;
    let said = broken(Bug::NonAtomicClaim, Threads::Many, law).expect("many claims acquire one key");
    assert!(said.contains("claims were acquired"), "{said}");
}

#[test]
fn a_difference_from_the_protocol_is_told_as_a_story() {
    let law = laws::equality::random_operations_are_answered_as_the_protocol_answers_them;
    let said = broken(Bug::UnconditionalFlip, Threads::One, law).unwrap();
    for word in ["seed ", "operation ", "store: ", "protocol: ", "   1. ", "complete key .."] {
        assert!(said.contains(word), "{word:?} is missing in:\n{said}");
    }
}

#[test]
fn what_guards_a_subject_is_dropped_at_the_end_of_a_broken_law_too() {
    let guard = Arc::new(());
    let watched = Arc::downgrade(&guard);
    let build = || mutant(None).guarded_by(guard);
    let held = AssertUnwindSafe(|| hold(Threads::One, build, async |_: &Subject| panic!("broken")));
    assert!(catch_unwind(held).is_err());
    assert!(watched.upgrade().is_none());
}

//! Tests with every bug of the mutants: found by the history, found by the order of application, or invisible for a
//! stated reason.
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use idempotent_core::Store;
use idempotent_simulator as sim;
use idempotent_simulator::mutants::{Bug, Mutant};
use idempotent_testkit::VirtualClock;

use super::each;

fn mutant(bug: Option<Bug>, clock: &VirtualClock) -> Arc<dyn Store> {
    Arc::new(Mutant::new(bug, Arc::new(clock.clone())))
}

/// The bugs that the judge of histories finds, with one of the violated invariants.
const TOLD: &[(Bug, &str)] = &[
    (Bug::NonAtomicClaim, "I1"),
    (Bug::TakeoverWithoutCompare, "I1"),
    (Bug::SettlingWithoutCompare, "I10"),
    (Bug::ClaimInTwoWrites, "I1"),
    (Bug::CompletionByDeleteAndInsert, "I4b"),
    (Bug::UnconditionalDelete, "I4"),
    (Bug::UnconditionalFlip, "I3"),
    (Bug::TokenWithoutNumber, "I3"),
    (Bug::TokenWithoutState, "I4"),
    (Bug::RenewWithoutOwner, "I3"),
    (Bug::LastResultStands, "I5"),
    (Bug::PutAfterVanish, "I3"),
    (Bug::RepetitionCounts, "I6"),
    (Bug::RepetitionIsInFlight, "I14"),
    (Bug::EarlyTakeover, "I1"),
    (Bug::ExpiryIgnored, "I13"),
    (Bug::DeadIsGranted, "I10"),
    (Bug::FailedIsGranted, "I10"),
    (Bug::AttemptCountedAtRelease, "I10"),
    (Bug::BuriesTheLiving, "I14"),
    (Bug::FingerprintFirst, "I12"),
    (Bug::FingerprintIgnored, "I12"),
    (Bug::FingerprintStays, "I12"),
    (Bug::FencingStartsAnew, "I6"),
    (Bug::TakeoverKeepsNumber, "I6"),
    (Bug::DeletionForgetsNumber, "I6"),
    (Bug::FencingInNanos, "I6"),
    (Bug::SecondsRounded, "I1"),
    (Bug::LateEnd, "I13"),
    (Bug::ClockReadOnce, "I13"),
    (Bug::RenewalShortens, "I1"),
    (Bug::RenewalDoesNothing, "I1"),
    (Bug::RenewalForgetsMemory, "I10"),
    (Bug::RetentionIsTheLease, "I4b"),
    (Bug::CaseFolded, "I12"),
    (Bug::KeyJoined, "I4b"),
    (Bug::KeyCutOff, "I4b"),
    (Bug::HashHalved, "I4b"),
    (Bug::EmptyIsNone, "I5"),
    (Bug::BatchInDisorder, "I14"),
    (Bug::PurgeTakesTheLiving, "I4b"),
    (Bug::ForgetAnyNumber, "I4"),
    (Bug::ForgetHeld, "I2"),
];

/// The bugs that only the simulator finds, by the order of application, policies and counts.
const APPLIED: &[(Bug, &str)] = &[
    (Bug::AtomicPerConnection, "I13 as applied"),
    (Bug::RepeatedReleaseIsDone, "I2 as applied"),
    (Bug::PurgeTakesOrphans, "I10 as applied"),
    (Bug::LateOwnerRefused, "I14 as applied"),
    (Bug::RepetitionTakesOver, "I6 as applied"),
    (Bug::ParkIgnored, "I10 as applied"),
    (Bug::DelayIgnored, "I10 as applied"),
    (Bug::RefundCounts, "I10 as applied"),
    (Bug::NoFingerprintDiffers, "I12 as applied"),
];

/// The bugs that have no wrong effect in a simulation, with the reason.
const UNSEEN: &[(Bug, &str)] = &[
    (Bug::RefundLeavesTrace, "a trace that says nothing hurts nobody"),
    (Bug::RefundHidesTakeover, "what a run took over is told to its handler, not to a history"),
    (Bug::ErrorDropped, "texts of errors are for people; a history has none"),
    (Bug::NoLimitIsTen, "no key of a world is run ten times without a limit"),
    (Bug::PurgeForgetsNumber, "numbers are µs: it takes two grants and a purge within one"),
    (Bug::ForgettingForgetsNumber, "numbers are µs: it takes two grants and an operator within one"),
    (Bug::PeekShowsExpired, "an operator who sees too much is refused when he acts on it"),
    (Bug::TenYearsAtMost, "no world lasts ten years"),
    (Bug::MemoryEndsEarly, "what is forgotten a ms early is asked for later than that"),
    (Bug::ClientClock, "the store is given one clock, its own"),
    (Bug::TakeoverByClientClock, "the store is given one clock, its own"),
    (Bug::AnswersFromMemory, "all workers share one handle of the store"),
    (Bug::WakesItselfOnly, "all workers share one handle of the store; and waiting is only slower"),
    (Bug::ReleaseWakesNobody, "who is not woken asks again: only slower"),
    (Bug::RefusalIsDone, "faults are the network's, not the store's"),
    (Bug::LostReplyIsNotApplied, "faults are the network's, not the store's"),
    (Bug::RefusalIsAmbiguous, "faults are the network's, not the store's"),
    (Bug::TextEndsAtNul, "no text of a world has a NUL in it"),
    (Bug::ValueCutOff, "no result of a world is that long"),
    (Bug::UnreadableIsAbsent, "no record of a world is damaged"),
    (Bug::UnreadableIsDeleted, "no record of a world is damaged"),
    (Bug::VersionIgnored, "no record of a world is damaged"),
    (Bug::ForeignIsCorrupt, "no record of a world is damaged"),
    (Bug::UnreadableIsMismatch, "no record of a world is damaged"),
    (Bug::PurgeTakesUnreadable, "no record of a world is damaged"),
    (Bug::SearchEndsAtUnreadable, "nobody lists records"),
    (Bug::SearchHidesUnreadable, "nobody lists records"),
    (Bug::BatchFailsAsAWhole, "no record of a world is damaged"),
    (Bug::AbilityComesAndGoes, "what is not offered is done without"),
    (Bug::SearchShowsExpired, "nobody lists records"),
    (Bug::SearchRepeats, "nobody lists records"),
    (Bug::SearchIgnoresStates, "nobody lists records"),
    (Bug::SearchIgnoresAges, "nobody lists records"),
    (Bug::SearchIgnoresBudget, "nobody lists records"),
    (Bug::SearchReturnsResults, "nobody lists records"),
    (Bug::SearchCountsRecords, "nobody lists records"),
    (Bug::PurgeWithoutBound, "what a purge may take, it may take at once"),
    (Bug::StepNotedForAnybody, "no handler of a world has steps"),
    (Bug::StepNotedWithoutCompare, "no handler of a world has steps"),
    (Bug::LastStepStands, "no handler of a world has steps"),
    (Bug::StepsByName, "no handler of a world has steps"),
    (Bug::StepsEndWithTheGrant, "no handler of a world has steps"),
    (Bug::StepsOutliveTheRecord, "no handler of a world has steps"),
    (Bug::StepsOfAllKeys, "no handler of a world has steps"),
    (Bug::LineWithoutCompare, "no call of a world stands in a stream"),
    (Bug::LineComparedFirst, "no call of a world stands in a stream"),
    (Bug::LineOfNothing, "no call of a world stands in a stream"),
    (Bug::LinesOfAllStreams, "no call of a world stands in a stream"),
    (Bug::LineCutAtZero, "no call of a world stands in a stream"),
    (Bug::LineInThePlaceOfARecord, "no call of a world stands in a stream"),
    (Bug::PurgeTakesLines, "no call of a world stands in a stream"),
];

/// Returns the bugs that no seed shows.
fn unfound(bugs: &[(Bug, &str)]) -> Vec<String> {
    let said = each(bugs, |(bug, name)| {
        let found = (0..SEEDS).any(|seed| sim::run(seed, |clock| mutant(Some(*bug), clock)).violates(name));
        (!found).then(|| format!("{bug:?} by {name}"))
    });
    said.into_iter().flatten().collect()
}

/// The number of seeds that shows the rarest bug.
const SEEDS: u64 = 400;

#[test]
fn the_history_tells_what_is_wrong_with_a_store() {
    assert_eq!(unfound(TOLD), [""; 0]);
}

#[test]
fn the_order_of_application_tells_what_the_history_cannot() {
    assert_eq!(unfound(APPLIED), [""; 0]);
}

#[test]
fn nothing_is_found_where_nothing_can_be() {
    find_nothing(0..3);
}

mod extras {
    #[test]
    fn nothing_is_found_where_nothing_can_be_in_20_worlds() {
        super::find_nothing(0..20);
    }

    #[test]
    fn a_store_without_a_bug_is_not_refused_in_300_worlds() {
        super::refuse_nothing(0..300);
    }
}

fn find_nothing(seeds: Range<u64>) {
    let said = each(UNSEEN, |(bug, reason)| {
        let seen = seeds.clone().find(|seed| !sim::run(*seed, |clock| mutant(Some(*bug), clock)).violations.is_empty());
        seen.map(|seed| format!("seed {seed} shows {bug:?}, and it was said that {reason}"))
    });
    assert_eq!(said.into_iter().flatten().collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn every_bug_is_in_one_of_the_lists() {
    let all: Vec<_> = TOLD.iter().chain(APPLIED).chain(UNSEEN).map(|(bug, _)| format!("{bug:?}")).collect();
    let listed: BTreeSet<_> = all.iter().cloned().collect();
    assert_eq!(all.len(), listed.len(), "a bug stands twice");
    assert_eq!(listed, Bug::ALL.iter().map(|bug| format!("{bug:?}")).collect());
}

#[test]
fn a_store_without_a_bug_is_not_refused() {
    refuse_nothing(0..60);
}

fn refuse_nothing(seeds: Range<u64>) {
    let campaign = sim::campaign(seeds, |_, clock| mutant(None, clock));
    assert!(campaign.failed.is_empty(), "{:#?}", campaign.failed);
    assert!(campaign.coverage.times("batch") > 0);
}

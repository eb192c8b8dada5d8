//! Tests of the laws of stores with mutants: each bug breaks the laws about it.
mod matrix;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use idempotent_simulator::mutants::{Bug, Mutant};
use idempotent_testkit::conformance::{Need, Threads, hold, laws, not_on_offer};
use idempotent_testkit::{Subject, VirtualClock};

use self::matrix::{broken, law};

idempotent_testkit::conformance!(a_mutant_without_a_bug_keeps_every_law, Mutant::subject(None).rounds(50));

const EQUALITY: &str = "random_operations_are_answered_by_the_protocol";

#[test]
fn a_difference_from_the_protocol_is_reported_as_a_short_story() {
    let said = broken(law(EQUALITY), Some(Bug::RenewalShortens)).expect("caught");
    for word in ["seed 0, script ", "store: ", "protocol: ", "   1. claim key ", "renew ", " steps are enough"] {
        assert!(said.contains(word), "{word:?} is missing in:\n{said}");
    }
    // The two steps are a claim and a renewal with a shorter lease.
    assert!(said.contains("\n2 of its ") && !said.contains("   3. "), "it is not as short as it can be:\n{said}");
}

#[test]
fn the_same_seed_tells_the_same_story_and_another_seed_another_one() {
    let told = |seed| {
        let build = || {
            let clock = VirtualClock::new();
            Subject::new(Mutant::new(Some(Bug::RenewalShortens), Arc::new(clock.clone()))).on_clock(clock)
        };
        let law = async |s: &Subject| laws::equality::answered_as_by_the_protocol(s, seed, 100).await;
        let panic = catch_unwind(AssertUnwindSafe(|| hold(Threads::One, build, law))).expect_err("not caught");
        panic.downcast_ref::<String>().unwrap().clone()
    };
    assert_eq!(told(1), told(1));
    assert_ne!(told(1), told(2));
}

#[test]
fn a_law_with_a_missing_need_names_the_ways_to_offer_or_exclude_it() {
    let bare = || Subject::new(idempotent_core::MemoryStore::new());
    let law = law("a_damaged_record_is_corrupt_for_each_operation");
    let panic = catch_unwind(|| law.hold(bare)).expect_err("it passed, and showed nothing");
    let said = panic.downcast_ref::<String>().unwrap();
    let line = "conformance!(name, builder, without: [clock, second, clients, losing, planting, foreign])";
    assert!(said.starts_with("needs `planting`: ") && said.contains(line), "{said}");
}

#[test]
fn a_law_that_breaks_for_the_clock_says_so() {
    let on_another_clock = || Subject::new(idempotent_core::MemoryStore::new()).on_clock(VirtualClock::new());
    for name in ["a_lease_ends_to_the_ms", "an_absent_key_is_acquired", "the_store_uses_its_configured_clock"] {
        let panic = catch_unwind(|| law(name).hold(on_another_clock)).expect_err("it passed");
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(said.starts_with("the store does not live by the clock given to `on_clock`"), "{name}: {said}");
    }
    let said = broken(law("a_lease_ends_to_the_ms"), Some(Bug::LateEnd)).expect("caught");
    assert!(!said.contains("on_clock"), "its clock is right: {said}");
}

#[test]
fn a_broken_law_says_what_the_store_did_and_what_the_protocol_says() {
    let said = broken(
        law("a_completion_repeated_by_its_owner_is_done_and_keeps_the_first_result"),
        Some(Bug::LastResultStands),
    );
    let said = said.expect("caught");
    assert!(said.starts_with("the store answered ") && said.contains(", the protocol says "), "{said}");
    assert!(said.ends_with("the record does not change, and the first result stays"), "{said}");
}

#[test]
fn an_excluded_need_that_is_present_is_reported() {
    let build = || Mutant::subject(None);
    let panic = catch_unwind(|| not_on_offer(build, &[Need::Second, Need::Batch])).expect_err("it passed");
    assert!(panic.downcast_ref::<String>().unwrap().contains("second, batch"));
}

#[test]
fn the_guard_of_a_subject_is_dropped_at_the_end_of_a_broken_law_too() {
    let guard = Mutex::new(Some(Arc::new(())));
    let watched = guard.lock().unwrap().as_ref().map(Arc::downgrade).unwrap();
    let build = || Mutant::subject(None).guarded_by(guard.lock().unwrap().take());
    let held = AssertUnwindSafe(|| hold(Threads::One, build, async |_: &Subject| panic!("broken")));
    assert!(catch_unwind(held).is_err());
    assert!(watched.upgrade().is_none());
}

#[test]
fn one_test_fails_for_all_that_is_missing_with_the_line_to_paste() {
    use idempotent_testkit::conformance::{Need, hold_left_out, hold_listed, left_out};
    let bare = || Subject::new(idempotent_core::MemoryStore::new());
    // A law whose need is missing is not held, and says so on stderr.
    let damaged = law("a_damaged_record_is_corrupt_for_each_operation");
    hold_listed(damaged.group(), damaged.name(), || {
        Box::pin(async { Subject::new(idempotent_core::MemoryStore::new()) })
    });
    // Under `--include-ignored`, a law that is left out by name is held.
    let held = catch_unwind(|| {
        hold_left_out(damaged.group(), damaged.name(), || {
            Box::pin(async { Subject::new(idempotent_core::MemoryStore::new()) })
        });
    });
    assert!(held.is_err(), "its need is missing, so it must not pass");
    let panic = catch_unwind(|| left_out(bare, &[Need::Clock])).expect_err("it passed");
    let said = panic.downcast_ref::<String>().unwrap();
    let line = "conformance!(name, builder, without: [clock, second, clients, losing, planting, foreign])";
    assert!(said.contains(line) && said.contains("\n  planting: give a way to damage records"), "{said}");
    assert!(!said.contains("\n  clock:"), "what is left out by name needs no remedy: {said}");
    let all = Subject::new(idempotent_core::MemoryStore::new()).missing();
    left_out(bare, &all);
}

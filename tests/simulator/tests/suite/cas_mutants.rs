//! Tests of the laws of backends with mutants: each bug breaks the laws about it.
mod backend;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use idempotent_testkit::conformance::laws::cas as laws;
use idempotent_testkit::conformance::{CasLaw, Threads, hold_cas};
use idempotent_testkit::{CasSubject, VirtualClock, cas_conformance};

use self::backend::{Bug, Mutant};

fn mutant(bug: impl Into<Option<Bug>>) -> CasSubject {
    let clock = VirtualClock::new();
    CasSubject::new(Mutant::new(bug.into(), clock.clone())).on_clock(clock).rounds(10)
}
cas_conformance!(a_backend_without_a_bug_keeps_every_law, mutant(None));

/// Returns the panic of the law if the mutant breaks it.
fn broken(bug: Bug, threads: Threads, law: impl AsyncFnOnce(&CasSubject)) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| hold_cas(threads, || mutant(bug), law))).err()?;
    Some(panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

macro_rules! caught {
    ($($name:ident: $bug:ident by $($threads:ident $group:ident::$law:ident)+;)+) => {$(
        #[test]
        fn $name() {
            $(assert!(
                broken(Bug::$bug, Threads::$threads, laws::$group::$law).is_some(),
                "{:?} was not caught by {}", Bug::$bug, stringify!($law)
            );)+
        }
    )+};
}

caught! {
    versions_that_restart_behind_a_deletion_are_caught: VersionRestarts by
        One versions::a_version_does_not_repeat_after_a_deletion
        One versions::a_long_history_has_no_version_twice;
    a_version_that_says_only_that_a_row_exists_is_caught: VersionIsExists by
        One versions::each_write_changes_the_version_also_of_an_equal_record
        One versions::a_version_does_not_repeat_after_a_deletion
        One versions::a_version_does_not_repeat_after_writes
        Many races::one_of_several_racing_swaps_with_one_version_wins
        Many races::no_update_is_lost_among_racing_ones;
    a_version_that_is_a_digest_is_caught: VersionIsContent by
        One versions::each_write_changes_the_version_also_of_an_equal_record
        One versions::a_version_does_not_repeat_after_writes;
    a_counter_that_begins_with_zero_is_caught: ZeroForARecord by
        One versions::the_version_is_zero_exactly_without_a_record;
    one_version_for_all_keys_is_caught: VersionOfTheWholeStore by
        One versions::two_keys_share_neither_rows_nor_versions;
    a_swap_that_does_not_compare_is_caught: SwapIgnoresVersion by
        One versions::a_version_does_not_repeat_after_writes
        One swaps::a_swap_that_expects_no_record_does_not_replace_one
        One swaps::a_swap_that_expects_a_record_does_not_create_one
        One swaps::a_refused_swap_changes_nothing
        Many races::one_of_several_racing_swaps_with_one_version_wins;
    zero_taken_for_any_version_is_caught: ZeroIsAnyVersion by
        One swaps::a_swap_that_expects_no_record_does_not_replace_one;
    nothing_taken_for_any_version_is_caught: AbsentIsAnyVersion by
        One swaps::a_swap_that_expects_a_record_does_not_create_one;
    a_deletion_that_does_not_compare_is_caught: DeletionIgnoresVersion by
        One versions::a_version_does_not_repeat_after_writes
        One swaps::a_swap_that_expects_no_record_does_not_replace_one
        Many races::one_of_several_racing_writes_and_deletions_with_one_version_wins;
    a_refused_swap_that_writes_is_caught: RefusedSwapWrites by
        One swaps::a_refused_swap_changes_nothing;
    a_refused_swap_that_counts_is_caught: RefusedSwapCounts by
        One swaps::a_refused_swap_changes_nothing;
    a_deletion_that_keeps_is_caught: NoneIsKept by
        One swaps::a_swap_to_no_record_deletes;
    a_swap_in_two_steps_is_caught: SwapInTwoSteps by
        Many races::one_of_several_racing_swaps_with_one_version_wins
        Many races::one_of_several_racing_writes_and_deletions_with_one_version_wins
        Many races::no_update_is_lost_among_racing_ones;
    a_read_in_two_steps_is_caught: ReadInTwoSteps by
        Many races::a_read_gives_the_record_and_the_version_of_one_moment;
    a_key_stuck_behind_a_hidden_record_is_caught: HidesExpired by
        One versions::a_version_does_not_repeat_after_an_expiry;
    a_record_removed_early_is_caught: RemovesEarly by
        One records::a_record_stays_until_its_time;
    rows_removed_at_the_end_of_their_records_are_caught: RemovesAtTheEnd by
        One versions::a_swap_that_expects_no_record_is_refused_for_an_hour_after_an_expiry;
    a_purge_without_the_margin_is_caught: PurgesWithoutMargin by
        One versions::a_swap_that_expects_no_record_is_refused_for_an_hour_after_an_expiry;
    rows_found_by_the_readable_part_are_caught: KeyByName by
        One versions::two_keys_share_neither_rows_nor_versions;
    an_empty_value_kept_as_none_is_caught: EmptyIsNone by
        One records::empty_hostile_and_large_values_are_read_back_unchanged;
    times_cut_to_milliseconds_are_caught: TimesInMillis by
        One records::records_of_every_state_are_read_back_unchanged;
    a_clock_in_milliseconds_is_caught: NowInMillis by
        One records::time_passes_in_microseconds;
    a_clock_that_stands_is_caught: ClockReadOnce by
        One records::time_passes_in_microseconds;
    reading_that_counts_is_caught: ReadingCounts by
        One versions::reading_changes_nothing;
    a_swap_that_is_done_and_denied_is_caught: DoneAndDenied by
        One swaps::a_swap_with_the_version_just_read_writes;
    a_swap_that_is_said_and_not_done_is_caught: SaidAndNotDone by
        One swaps::a_swap_with_the_version_just_read_writes
        Many races::one_of_several_racing_swaps_with_one_version_wins
        Many races::a_read_gives_the_record_and_the_version_of_one_moment;
    a_backend_that_refuses_for_ever_is_caught: RefusesTheThird by
        One swaps::a_swap_with_the_version_just_read_writes
        Many races::no_update_is_lost_among_racing_ones;
    an_end_where_there_is_none_is_caught: NoTimeWithoutEnd by
        One records::a_record_without_expiry_is_read_back_unchanged;
    a_clock_that_goes_back_is_caught: TwoClocks by
        One records::time_never_decreases;
}

#[test]
fn readers_of_a_swap_that_wrote_nothing_are_not_kept_waiting() {
    let law = laws::races::a_read_gives_the_record_and_the_version_of_one_moment;
    let said = broken(Bug::SaidAndNotDone, Threads::Many, law).unwrap();
    assert!(said.contains("the last write was not seen: swap said true and wrote nothing"), "{said}");
}

#[test]
fn a_law_that_breaks_for_the_clock_says_so_and_one_that_breaks_for_its_unit_does_not() {
    let law = laws::records::time_passes_in_microseconds;
    let said = broken(Bug::ClockReadOnce, Threads::One, law).unwrap();
    assert!(said.starts_with("the backend does not live by the clock given to `on_clock`"), "{said}");
    let said = broken(Bug::NowInMillis, Threads::One, law).unwrap();
    assert!(said.contains("is it not in µs?"), "{said}");
}

#[test]
fn a_version_that_returns_is_reported_with_its_remedy() {
    for law in ["a_refused_swap_changes_nothing", "a_version_does_not_repeat_after_a_deletion"] {
        let law = laws::all().find(|each| each.name() == law).unwrap();
        let panic = catch_unwind(|| law.hold(|| mutant(Bug::VersionRestarts))).unwrap_err();
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(said.to_lowercase().contains("take versions from one counter for the whole store"), "{said}");
    }
}

#[test]
fn the_guard_of_a_subject_is_dropped_at_the_end_of_a_broken_law_too() {
    let guard = Arc::new(());
    let watched = Arc::downgrade(&guard);
    let build = || mutant(Bug::SwapIgnoresVersion).guarded_by(guard);
    let law = laws::swaps::a_refused_swap_changes_nothing;
    assert!(catch_unwind(AssertUnwindSafe(|| hold_cas(Threads::One, build, law))).is_err());
    assert!(watched.upgrade().is_none());
}

/// Checks that each law is broken by a mutant, in addition to `caught!`, which checks that each mutant breaks a law.
#[test]
fn each_law_is_broken_by_a_mutant_and_each_mutant_breaks_a_law() {
    let names = |laws: &mut dyn Iterator<Item = &'static CasLaw>| laws.map(CasLaw::name).collect::<BTreeSet<_>>();
    let mut unbroken = names(&mut laws::all());
    for bug in Bug::ALL {
        let breaks = |law: &&CasLaw| catch_unwind(AssertUnwindSafe(|| law.hold(|| mutant(*bug)))).is_err();
        let broken = names(&mut laws::all().filter(breaks));
        assert!(!broken.is_empty(), "{bug:?} breaks no law");
        unbroken.retain(|law| !broken.contains(law));
    }
    assert!(unbroken.is_empty(), "no mutant breaks these, do they say anything? {unbroken:#?}");
}

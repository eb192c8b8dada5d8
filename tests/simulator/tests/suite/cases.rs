//! Bad inputs that a store can detect, with the laws that check them.
use std::sync::Arc;

use idempotent_core::{Identity, KeyError, MemoryStore, Scene};
use idempotent_simulator::mutants::{Bug, Mutant};
use idempotent_testkit::conformance::laws;
use idempotent_testkit::{Subject, VirtualClock};

fn memory() -> Subject {
    let clock = VirtualClock::new();
    Subject::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build()).on_clock(clock)
}

/// Checks these laws on the mutant without a bug, and those without needs also on the memory store.
fn kept(names: &[&str]) {
    for name in names {
        let law = laws::all().find(|law| law.name() == *name).unwrap_or_else(|| panic!("no law is called {name}"));
        if law.needs().is_empty() {
            law.hold(memory);
        }
        law.hold(|| Mutant::subject(None));
    }
}

macro_rules! shown {
    ($($case:ident: $($law:ident)+;)+) => {$(
        #[test]
        fn $case() {
            kept(&[$(stringify!($law)),+]);
        }
    )+};
}

shown! {
    strange_keys_are_kept_apart: keys_that_look_alike_are_separate;
    strange_texts_come_back_unchanged: hostile_texts_and_values_are_read_back_unchanged;
    case_blanks_and_normal_forms_are_kept_apart:
        keys_that_look_alike_are_separate stored_keys_that_differ_only_by_case_are_separate;
    parts_around_a_separator_are_kept_apart:
        keys_that_differ_in_one_byte_are_separate keys_with_an_ambiguous_boundary_of_name_and_hash_are_separate;
    equal_keys_of_two_tenants_are_kept_apart: tenants_scenes_and_scopes_are_separate;
    damaged_records_are_refused_and_left_unchanged:
        a_damaged_record_is_corrupt_for_each_operation an_unreadable_record_is_never_overwritten_or_deleted
        a_purge_keeps_unreadable_records a_search_reports_unreadable_records;
    a_record_of_a_newer_version_is_refused_and_left_unchanged: a_record_of_a_newer_version_is_refused_by_each_operation;
    a_foreign_value_is_refused_and_left_unchanged: a_foreign_value_is_refused_by_each_operation;
}

/// Invalid keys never reach a store.
#[test]
fn keys_that_are_none_are_refused_before_any_store() {
    let key = |part: &str| Identity::new(Scene::Mq, "law", part).key("laws");
    assert!(matches!(key(""), Err(KeyError::Empty { .. })));
    for bytes in [1_025, 1 << 20] {
        assert!(matches!(key(&"a".repeat(bytes)), Err(KeyError::TooLong { .. })), "{bytes} bytes");
    }
    key(&"a".repeat(1_024)).unwrap();
}

/// A store that joins, cuts off or folds keys breaks the laws above.
#[test]
fn a_store_that_takes_two_keys_for_one_is_caught() {
    for (bug, name) in [
        (Bug::CaseFolded, "stored_keys_that_differ_only_by_case_are_separate"),
        (Bug::KeyJoined, "keys_with_an_ambiguous_boundary_of_name_and_hash_are_separate"),
        (Bug::KeyCutOff, "tenants_scenes_and_scopes_are_separate"),
    ] {
        let law = laws::all().find(|law| law.name() == name).unwrap();
        assert!(std::panic::catch_unwind(|| law.hold(|| Mutant::subject(Some(bug)))).is_err(), "{bug:?}");
    }
}

//! The laws of adapters, on a broker in memory: it keeps them all, and with a bug it breaks those that are about it.
mod bugs;
mod client;
mod simulated;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use idempotent_testkit::broker::{Law, all};
use idempotent_testkit::broker_conformance;

use self::bugs::{Bug, laws_about};
use self::simulated::Simulated;

broker_conformance!(a_broker_without_a_bug_keeps_every_law, Simulated::new(None));
// There is no place for attempts.
broker_conformance!(
    one_that_holds_for_a_time_keeps_the_others,
    Simulated::by_time(),
    without: [
        a_postponed_delivery_is_the_same_attempt,
        a_retry_leaves_attempt_and_first_seen,
        the_attempts_of_a_retry_survive_a_return,
    ]
);

/// Left out, it is listed as ignored; it is not run here, where nothing is asked of the clock.
mod left_out {
    use super::*;
    broker_conformance!(by_name, Simulated::new(None), without: [repeated_headers_arrive_in_order]);
}

fn law(name: &str) -> Law<Simulated> {
    all().into_iter().find(|law: &Law<_>| law.name() == name).unwrap_or_else(|| panic!("no law `{name}`"))
}

#[test]
fn every_bug_is_caught_by_the_laws_about_it() {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        for name in laws_about(*bug) {
            let held = catch_unwind(AssertUnwindSafe(|| law(name).hold(|| Simulated::new(Some(*bug)))));
            if held.is_ok() {
                missed.push(format!("{bug:?} was not caught by {name}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn every_law_catches_a_bug() {
    let caught: BTreeSet<_> = Bug::ALL.iter().flat_map(|bug| laws_about(*bug)).copied().collect();
    let laws: BTreeSet<_> = all::<Simulated>().iter().map(Law::name).collect();
    assert_eq!(laws.difference(&caught).collect::<Vec<_>>(), Vec::<&&str>::new(), "laws that catch nothing");
}

#[test]
fn the_docs_of_the_module_list_every_law() {
    let docs = include_str!("../../src/broker.rs");
    let rows = docs.lines().filter(|line| line.starts_with("//! | "));
    let named: BTreeSet<_> =
        rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(|n| n.contains('_')).collect();
    let laws: BTreeSet<_> = all::<Simulated>().iter().map(Law::name).collect();
    assert_eq!(named, laws);
}

#[test]
fn a_law_left_out_though_the_source_claims_it_is_a_failure() {
    let claimed = |name| {
        let left_out = || idempotent_testkit::broker::not_claimed(|| Simulated::new(None), &[name]);
        catch_unwind(AssertUnwindSafe(left_out)).is_err()
    };
    assert!(claimed("an_extended_delivery_is_held_beyond_the_brokers_limit"));
    assert!(claimed("a_retry_is_delivered_after_its_delay_and_never_before"));
    assert!(!claimed("repeated_headers_arrive_in_order"));
}

//! Tests of the shrinker: a small plan still fails.
use std::sync::Arc;

use idempotent_simulator::mutants::{Bug, Mutant};
use idempotent_simulator::{self as sim, Plan, Simulated};

fn world(plan: &Plan) -> Simulated {
    sim::play(plan, |clock| Arc::new(Mutant::new(Some(Bug::PurgeTakesTheLiving), Arc::new(clock.clone()))))
}

#[test]
fn a_failing_plan_is_made_small_and_fails_by_the_same_invariant() {
    let whole = (0..100).map(Plan::of).find(|plan| world(plan).violates("I4b")).unwrap();
    let small = sim::shrink(&whole, |plan| world(plan).violates("I4b"));
    assert!(world(&small).violates("I4b"));
    // Two messages, a purge and one or two workers show the bug.
    assert!(small.pieces() <= 8, "{} of {} pieces: {small:#?}", small.pieces(), whole.pieces());
    assert!(sim::shrink(&small, |plan| world(plan).violates("I4b")) == small, "nothing is left to take out");
}

#[test]
fn a_plan_survives_as_json() {
    for seed in 0..50 {
        let plan = Plan::of(seed);
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }
}

#[test]
fn a_violation_is_explained_with_plan_lines_and_reason() {
    let plan = (0..100).map(Plan::of).find(|plan| world(plan).violates("I4b")).unwrap();
    let text = world(&plan).explain();
    for part in ["\"deliveries\"", "as applied by the store", "\"event\":\"claim_won\"", "\nI4b: "] {
        assert!(text.contains(part), "{part} is missing");
    }
}

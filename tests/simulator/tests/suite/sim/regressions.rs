//! Plans that once found something. Kept as plans: a seed means another world as soon as the simulator changes.
use std::sync::Arc;

use idempotent_core::MemoryStore;
use idempotent_simulator::{self as sim, Plan};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    found: String,
    plan: Plan,
}

/// One JSON object a line; add what `cargo xtask sim` prints at its end.
const CASES: &str = include_str!("plans.jsonl");

#[test]
fn what_was_once_found_is_not_found_again() {
    let cases: Vec<Case> = CASES.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!cases.is_empty());
    for Case { found, plan } in cases {
        let world = sim::play(&plan, |clock| Arc::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build()));
        assert!(world.violations.is_empty(), "again: {found}\n{}", world.explain());
    }
}

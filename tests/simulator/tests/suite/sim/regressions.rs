//! Plans that once found a bug. A plan keeps its meaning when the generator changes, and a seed does not.
use std::sync::Arc;

use idempotent_core::MemoryStore;
use idempotent_simulator::{self as sim, Plan};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    found: String,
    plan: Plan,
}

/// One plan as JSON on each line, as the last line of a violation in `cargo xtask sim`.
const CASES: &str = include_str!("plans.jsonl");

#[test]
fn regressions_stay_repaired() {
    let cases: Vec<Case> = CASES.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!cases.is_empty());
    for Case { found, plan } in cases {
        let world = sim::play(&plan, |clock| Arc::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build()));
        assert!(world.violations.is_empty(), "again: {found}\n{}", world.explain());
    }
}

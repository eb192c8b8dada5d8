//! The protocol and its weakened forms, each against the adversary, and exactly the invariants that each violates.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "tests")]
mod additional_cases;
mod broken;
mod long_running;
mod record_reduction;
mod skewed_clocks;
mod table;
mod traces;

use std::collections::BTreeSet;
use std::io::Write;

use idempotent_model::check::{Report, check};
use idempotent_model::invariant::{Invariant, Sight};
use idempotent_model::variant::Variant;

/// The sights that every run must have: without these three, it would prove nothing.
const LIVELY: [Sight; 3] = [Sight::Acked, Sight::Takeover, Sight::Duplicate];

/// Checks a variant, prints the result past libtest's capture, and compares the violations.
fn violates<const N: usize>(variant: Variant, expected: [Invariant; N]) -> Report {
    let report = met(variant, &LIVELY);
    assert_eq!(report.set(), BTreeSet::from(expected), "what {} violates:\n{}", variant.name, told(&report));
    report
}

/// Checks a variant, and that these sights occurred.
fn met(variant: Variant, sights: &[Sight]) -> Report {
    let report = check(variant);
    // `eprintln!` would be captured, and these lines are the only output of a passing run.
    std::io::stderr().write_all(format!("{report}\n").as_bytes()).unwrap();
    for sight in sights {
        assert!(report.seen.contains_key(sight), "{} never came to: {}", variant.name, sight.name());
    }
    report
}

fn told(report: &Report) -> String {
    let stories =
        report.violated.keys().map(|invariant| format!("{invariant}:\n  {}", report.tell(*invariant).join("\n  ")));
    stories.collect::<Vec<_>>().join("\n")
}

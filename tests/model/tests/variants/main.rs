//! The protocol and its weakened forms, each against the adversary, and exactly what each violates.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "tests")]
mod beyond;
mod broken;
mod largest;
mod scale;
mod table;
mod traces;

use std::collections::BTreeSet;
use std::io::Write;

use idempotent_model::check::{Report, check};
use idempotent_model::invariant::{Invariant, Sight};
use idempotent_model::variant::Variant;

/// What every run must come across: without these three it would show nothing.
const LIVELY: [Sight; 3] = [Sight::Acked, Sight::Takeover, Sight::Duplicate];

/// Checks a variant, says what came of it past libtest's capture, and compares.
fn violates<const N: usize>(variant: Variant, expected: [Invariant; N]) -> Report {
    let report = met(variant, &LIVELY);
    assert_eq!(report.set(), BTreeSet::from(expected), "what {} violates:\n{}", variant.name, told(&report));
    report
}

/// Checks a variant, and that it came across this.
fn met(variant: Variant, sights: &[Sight]) -> Report {
    let report = check(variant);
    // `eprintln!` would be captured; these lines are what is to be seen of a run that passes.
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

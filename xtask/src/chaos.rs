//! Real processes on a real server, under faults; what the harness is asked and answers is its own.
use std::process::ExitCode;

use crate::heavy;

/// Without optimisation: it waits for others most of the time, and tests have built it already.
const HARNESS: [&str; 7] = ["run", "--quiet", "--locked", "--package", "idempotent-chaos", "--bin", "idempotent-chaos"];

pub(crate) fn run(arguments: &[&str]) -> ExitCode {
    // Only who asks for it builds the client that takes minutes.
    let heavy = arguments.first() == Some(&heavy::FEATURE);
    let features: &[&str] = if heavy { &["--features", heavy::FEATURE] } else { &[] };
    crate::sim::pass_on(&[&HARNESS[..], features].concat(), arguments)
}

//! Real processes on a real server, under faults; what the harness is asked and answers is its own.
use std::process::ExitCode;

/// Without optimisation: it waits for others most of the time, and tests have built it already.
const HARNESS: [&str; 7] = ["run", "--quiet", "--locked", "--package", "idempotent-chaos", "--bin", "idempotent-chaos"];

pub(crate) fn run(arguments: &[&str]) -> ExitCode {
    crate::sim::pass_on(&HARNESS, arguments)
}

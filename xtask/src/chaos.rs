//! The command `cargo xtask chaos`: real processes on a real server, under faults. The harness parses its own arguments
//! and prints its own results.
use std::process::ExitCode;

use crate::heavy;

/// The command of the harness, without optimisation: the harness mostly waits for others, and tests have already built it.
const HARNESS: [&str; 7] = ["run", "--quiet", "--locked", "--package", "idempotent-chaos", "--bin", "idempotent-chaos"];

pub(crate) fn run(arguments: &[&str]) -> ExitCode {
    // Only a play that needs the slow client builds it.
    let feature = heavy::ROCKETMQ.feature;
    let features: &[&str] = if arguments.contains(&feature) { &["--features", feature] } else { &[] };
    crate::sim::pass_on(&[&HARNESS[..], features].concat(), arguments)
}

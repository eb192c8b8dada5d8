//! The printed results of a series of checks.
use std::error::Error;
use std::process::Command;
use std::time::Instant;

use crate::tools::capture;

/// The result of a check.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    /// Failed, with the text to read.
    Failed(String),
    /// Skipped, with the reason.
    Skipped(String),
}

impl Outcome {
    /// Returns the outcome of a check with these findings.
    pub(crate) fn of(findings: Vec<String>) -> Self {
        if findings.is_empty() { Self::Passed } else { Self::Failed(findings.join("\n")) }
    }
}

/// The number of checks by their outcomes, and the names of those that failed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
}

impl Report {
    /// Runs the command silently, and prints its output if the command fails.
    pub(crate) fn command(&mut self, name: &str, mut command: Command) {
        self.check(name, || {
            let (status, output) = capture(&mut command)?;
            Ok(if status.success() { Outcome::Passed } else { Outcome::Failed(output) })
        });
    }

    /// Runs a check, and prints the outcome.
    pub(crate) fn check(&mut self, name: &str, check: impl FnOnce() -> Result<Outcome, Box<dyn Error>>) {
        let start = Instant::now();
        let outcome = check().unwrap_or_else(|e| Outcome::Failed(e.to_string()));
        let seconds = start.elapsed().as_secs_f32();
        match outcome {
            Outcome::Passed => {
                self.passed += 1;
                println!("ok       {name} ({seconds:.1} s)");
            }
            Outcome::Skipped(why) => {
                self.skipped += 1;
                println!("skipped  {name}: {why}");
            }
            Outcome::Failed(output) => {
                self.failed.push(name.to_owned());
                println!("FAILED   {name} ({seconds:.1} s)\n{}\n", output.trim_end());
            }
        }
    }

    /// Prints the number of outcomes, and returns whether no check failed.
    pub(crate) fn summary(&self, command: &str) -> bool {
        let Self { passed, failed, skipped } = self;
        println!("xtask {command}: {passed} passed, {} failed, {skipped} skipped", failed.len());
        if !failed.is_empty() {
            println!("failed: {}", failed.join(", "));
        }
        failed.is_empty()
    }
}

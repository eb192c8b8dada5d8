//! The printed results of a series of checks.
use std::error::Error;
use std::process::Command;
use std::time::Instant;

use crate::tools::{capture, stream};

/// The findings of a check, none if it passed.
pub(crate) type Findings = Result<Vec<String>, Box<dyn Error>>;

/// The number of checks that passed, and the names of those that failed or were skipped.
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
            Ok(if status.success() { Vec::new() } else { vec![output] })
        });
    }

    /// Runs a command that takes minutes, and shows its output at once.
    pub(crate) fn shown(&mut self, name: &str, mut command: Command) {
        self.check(name, || {
            let is_success = stream(&mut command, |_| {})?.success();
            Ok(if is_success { Vec::new() } else { vec!["see the output above".to_owned()] })
        });
    }

    /// Runs a check, and prints the outcome.
    pub(crate) fn check(&mut self, name: &str, check: impl FnOnce() -> Findings) {
        let start = Instant::now();
        let findings = check().unwrap_or_else(|e| vec![e.to_string()]);
        let seconds = start.elapsed().as_secs_f32();
        if findings.is_empty() {
            self.passed += 1;
            println!("ok       {name} ({seconds:.1} s)");
        } else {
            self.failed.push(name.to_owned());
            println!("FAILED   {name} ({seconds:.1} s)\n{}\n", findings.join("\n").trim_end());
        }
    }

    /// Prints that a check is not possible here.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        println!("skipped  {name}: {why}");
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

//! Counts of libtest's result lines, and of binaries that fail without one. The failure output is kept.
use std::mem;

use super::lanes::Ended;
use super::pace::Pace;
use super::slow::timed;

/// The number of lines of a binary's failures that are kept. The first lines contain the first failure completely.
const KEPT: usize = 120;

/// The number of tests that `--timings` prints.
const SLOWEST: usize = 60;

/// A parser of the output of `cargo test`, with stdout and stderr combined.
#[derive(Debug, Default)]
pub(super) struct Tally {
    passed: u64,
    failed: u64,
    /// The failures that the running binary has reported.
    told: u64,
    /// True if any binary of this run has failed.
    any_failed: bool,
    /// Cargo's line above the output of the running binary.
    binary: String,
    /// The failure output of the binary so far; `None` before its first line.
    speaks: Option<Vec<String>>,
    /// The failures that are printed again at the end, where they are easy to find.
    failures: Vec<String>,
    pace: Pace,
    /// The seconds and names of tests, if libtest prints them.
    timed: Vec<(f64, String)>,
}

impl Tally {
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// Targets that could not be built: one failure each.
    pub(super) fn unbuilt(&mut self, targets: usize) {
        self.failed += targets as u64;
    }

    pub(super) fn line(&mut self, line: &str) {
        if let Some((passed, failed)) = result(line) {
            self.passed += passed;
            self.failed += failed;
            self.told += failed;
            self.keep();
        } else if begins(line) {
            self.told = 0;
            self.speaks = None;
            self.binary = line.trim().to_owned();
            self.pace.begin(&self.binary);
        } else if line == "failures:" || self.speaks.is_some() {
            self.speaks.get_or_insert_default().push(line.to_owned());
        } else if fails(line) {
            self.fell();
        } else if let Some((seconds, name)) = timed(line) {
            self.timed.push((seconds, format!("{name}, {}", self.binary)));
        }
    }

    /// Records that the binary has failed.
    fn fell(&mut self) {
        self.any_failed = true;
        // The binary crashed or was killed before it could report a failure.
        if self.told == 0 {
            self.failed += 1;
            self.failures.push(format!("{}: no result", self.binary));
        }
        self.told = 0;
    }

    /// Prints and counts the whole output of one binary.
    pub(super) fn ended(&mut self, ended: Ended) {
        let Ended { title, took, said } = ended;
        let (head, before) = (format!("Running {title}"), self.failed);
        println!("     {head}");
        self.line(&head);
        match said {
            Ok((status, said)) => {
                print!("{said}");
                said.lines().for_each(|line| self.line(line));
                if !status.success() {
                    println!("error: {status}, {title}");
                    // Cargo's own line about a failed doc test has already been counted.
                    if self.failed == before {
                        self.fell();
                    }
                }
            }
            Err(error) => {
                println!("error: {error}, {title}");
                self.fell();
            }
        }
        self.pace.took(&head, took);
        self.end(true);
    }

    fn keep(&mut self) {
        let Some(said) = self.speaks.take() else { return };
        self.failures.push(self.binary.clone());
        let more = said.len().saturating_sub(KEPT);
        self.failures.extend(said.into_iter().take(KEPT));
        if more > 0 {
            self.failures.push(format!("({more} more lines above)"));
        }
    }

    /// Prints slow binaries, and once more all failures, each line after `failed> `, because thousands of lines may be
    /// between a failure and the end.
    pub(super) fn tell(&mut self, timings: bool) {
        for line in self.pace.tell() {
            println!("{line}");
        }
        self.timed.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        for (seconds, name) in mem::take(&mut self.timed).into_iter().take(if timings { SLOWEST } else { 0 }) {
            println!("{seconds:>6.1} s  {name}");
        }
        for line in mem::take(&mut self.failures) {
            println!("failed> {line}");
        }
    }

    /// Records the end of one run of cargo.
    pub(super) fn end(&mut self, success: bool) {
        self.pace.end();
        if !success && !self.any_failed {
            // Neither a test nor a binary failed, but cargo itself.
            self.failed += 1;
            self.failures.push("cargo itself".to_owned());
        }
        (self.told, self.any_failed) = (0, false);
    }
}

/// Parses `test result: ok. 3 passed; 1 failed; 0 ignored; …`.
fn result(line: &str) -> Option<(u64, u64)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |word: &str| {
        let mut counts = counts.split(';').filter_map(|count| count.trim().split_once(' '));
        counts.find(|(_, what)| *what == word)?.0.parse().ok()
    };
    Some((count("passed")?, count("failed")?))
}

/// Returns whether this is cargo's line above the output of a binary.
fn begins(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("Running ") || line.starts_with("Doc-tests ")
}

/// Returns whether this is cargo's line below the output of a failed binary.
fn fails(line: &str) -> bool {
    ["test", "doctest", "bench"].iter().any(|what| line.starts_with(&format!("error: {what} failed, to rerun pass ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tally(output: &str, success: bool) -> (u64, u64) {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.line(line));
        tally.end(success);
        (tally.passed(), tally.failed())
    }

    const GOOD: &str = "     Running unittests src/lib.rs (target/debug/deps/a-1)\n\
        running 3 tests\n\
        test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
    const BAD: &str = "     Running tests/b.rs (target/debug/deps/b-1)\n\
        test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.03s\n\
        error: test failed, to rerun pass `-p b --test b`\n";
    const CRASHED: &str = "     Running tests/c.rs (target/debug/deps/c-1)\n\
        running 1 test\n\
        error: test failed, to rerun pass `-p c --test c`\n\
        Caused by:\n  process didn't exit successfully: `c` (signal: 6, SIGABRT: process abort signal)\n";
    #[test]
    fn tests_run_without_cargo_are_counted_like_those_run_by_cargo() {
        let ended = |script: &str| {
            let said = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
            let text = String::from_utf8(said.stdout).unwrap();
            Ended { title: "x".to_owned(), took: std::time::Duration::ZERO, said: Ok((said.status, text)) }
        };
        let mut tally = Tally::default();
        tally.ended(ended("echo 'test result: ok. 3 passed; 0 failed; 0 ignored'"));
        tally.ended(ended("echo 'test result: FAILED. 1 passed; 2 failed; 0 ignored'; exit 101"));
        tally.ended(ended("echo 'test result: ok. 4 passed; 0 failed; 0 ignored'; exit 1"));
        tally.ended(ended("kill -9 $$"));
        assert_eq!((tally.passed(), tally.failed()), (8, 4));
        assert_eq!(tally.failures, ["Running x: no result"; 2]);
    }

    const NO_HARNESS: &str = "     Running benches/d.rs (target/debug/deps/d-1)\n";

    #[test]
    fn results_are_summed_up() {
        assert_eq!(tally(&[GOOD, GOOD, NO_HARNESS].concat(), true), (6, 0));
        assert_eq!(tally(&[GOOD, BAD, GOOD].concat(), false), (10, 2));
    }

    #[test]
    fn a_binary_that_ends_without_a_result_is_one_failure() {
        assert_eq!(tally(&[GOOD, CRASHED, GOOD].concat(), false), (6, 1));
        assert_eq!(tally(&[BAD, CRASHED].concat(), false), (4, 3));
        assert_eq!(tally(&[CRASHED, BAD].concat(), false), (4, 3));
    }

    #[test]
    fn a_good_result_and_then_a_crash_is_one_failure() {
        let output = [GOOD, "error: test failed, to rerun pass `-p a --lib`\n"].concat();
        assert_eq!(tally(&output, false), (3, 1));
    }

    #[test]
    fn the_output_of_a_failure_is_kept_whole_with_its_binary() {
        let said = "failures:\n\n---- b::c stdout ----\npanicked at b.rs\n\nfailures:\n    b::c\n\n";
        let (begin, end) = BAD.split_at(BAD.find("test result").unwrap());
        let mut tally = Tally::default();
        [GOOD, begin, said, end, GOOD, CRASHED].concat().lines().for_each(|line| tally.line(line));
        let expected =
            [&["Running tests/b.rs (target/debug/deps/b-1)"][..], &said.lines().collect::<Vec<_>>()].concat();
        let (last, kept) = tally.failures.split_last().unwrap();
        assert_eq!(kept, expected);
        assert_eq!(last, "Running tests/c.rs (target/debug/deps/c-1): no result");
    }

    #[test]
    fn cargo_failing_by_itself_is_one_failure() {
        assert_eq!(tally("error: no matching package\n", false), (0, 1));
    }

    #[test]
    fn the_output_of_a_test_is_not_a_result() {
        assert_eq!(tally("  test result: ok. 3 passed; 0 failed; 0 ignored\ntest result: fine\n", true), (0, 0));
    }
}

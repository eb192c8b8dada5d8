//! The counts of tests, and the output of those that failed.
use std::time::Duration;

use super::lanes::Ended;

/// The number of lines of a failed job that are printed again. The first lines contain the first failure completely.
const KEPT: usize = 120;

/// Jobs that take less are not listed.
const LONG: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Tally {
    passed: u64,
    failed: u64,
    /// The output of failed jobs, each with its title.
    failures: Vec<String>,
    lasted: Vec<(Duration, String)>,
}

impl Tally {
    /// Prints the result, and returns whether at least one test passed and none failed.
    pub(super) fn is_good(&self, command: &str) -> bool {
        println!("xtask {command}: {} passed, {} failed", self.passed, self.failed);
        self.failed == 0 && self.passed > 0
    }

    /// Counts one failure that is not of a test.
    pub(super) fn fail(&mut self, what: &str) {
        println!("error: {what}");
        self.failed += 1;
        self.failures.push(what.to_owned());
    }

    /// Prints and counts the whole output of one job, and returns the number of its results. A job that fails without a failed
    /// test has crashed, and is one failure.
    pub(super) fn ended(&mut self, Ended { title, took, said }: Ended) -> u64 {
        println!("     Running {title}");
        let (is_success, said) = match said {
            Ok((status, said)) => (status.success(), said),
            Err(error) => (false, format!("{error}\n")),
        };
        print!("{said}");
        let results = said.lines().filter_map(result);
        let (passed, failed) = results.fold((0, 0), |sums, result| (sums.0 + result.0, sums.1 + result.1));
        (self.passed, self.failed) = (self.passed + passed, self.failed + failed);
        self.lasted.push((took, title.clone()));
        let has_crashed = !is_success && failed == 0;
        if has_crashed {
            self.fail(&format!("{title}: no result"));
        } else if !is_success {
            self.failures.push(title);
        }
        if !is_success {
            let failures: Vec<_> = said.lines().skip_while(|line| *line != "failures:").map(str::to_owned).collect();
            let more = failures.len().saturating_sub(KEPT);
            self.failures.extend(failures.into_iter().take(KEPT));
            self.failures.extend((more > 0).then(|| format!("({more} more lines above)")));
        }
        passed + failed + u64::from(has_crashed)
    }

    /// Prints the jobs that took long, and once more all failures, each line after `failed> `, because thousands of lines
    /// may be between a failure and the end.
    pub(super) fn tell(&mut self) {
        self.lasted.sort();
        for (took, title) in self.lasted.iter().rev().filter(|(took, _)| *took >= LONG) {
            println!("{:>4} s  {title}", took.as_secs());
        }
        for line in &self.failures {
            println!("failed> {line}");
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_job_counts_its_tests_and_one_failure_if_it_crashes() {
        let mut tally = Tally::default();
        let mut ended = |script: &str| {
            let output = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
            let said = Ok((output.status, String::from_utf8(output.stdout).unwrap()));
            tally.ended(Ended { title: "x".to_owned(), took: Duration::ZERO, said })
        };
        assert_eq!(ended("echo 'test result: ok. 3 passed; 0 failed; 0 ignored'"), 3);
        let failures = "printf 'a\\nfailures:\\n---- b ----\\ntest result: FAILED. 1 passed; 2 failed; 0 ignored\\n'";
        assert_eq!(ended(&format!("{failures}; exit 101")), 3);
        assert_eq!(ended("echo 'test result: ok. 4 passed; 0 failed; 0 ignored'; exit 1"), 5);
        assert_eq!(ended("kill -9 $$"), 1);
        assert_eq!(ended("echo '  test result: ok. 3 passed; 0 failed'; echo 'test result: fine'"), 0);
        assert_eq!((tally.passed, tally.failed), (8, 4));
        let of_the_second = ["x", "failures:", "---- b ----", "test result: FAILED. 1 passed; 2 failed; 0 ignored"];
        assert_eq!(tally.failures, [&of_the_second[..], &["x: no result"; 2]].concat());
    }
}

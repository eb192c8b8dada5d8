//! Jobs, each with the tests of one binary, which run in parallel, since most tests mostly wait for servers and workers.
use std::error::Error;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::build::{Built, libraries};
use crate::tools::{capture, concurrently};

/// The number of parallel jobs. It is higher than the number of cores.
pub(super) const LANES: usize = 4;

/// The number of lines of a failed job that are printed again. The first lines contain the first failure completely.
const KEPT: usize = 120;

/// Jobs that take less are not listed.
const LONG: Duration = Duration::from_secs(10);

/// A command to run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) title: String,
    pub(super) command: Command,
    /// True if a run without a test is a failure: the filter no longer matches.
    pub(super) is_selection: bool,
}

/// Selected tests of one binary.
pub(super) struct SelectedTests {
    pub(super) what: &'static str,
    pub(super) package: &'static str,
    pub(super) target: &'static str,
    pub(super) arguments: &'static [&'static str],
}

impl SelectedTests {
    /// Returns the job that runs these tests.
    pub(super) fn of(&self, built: &Built) -> Result<Job, Box<dyn Error>> {
        let mut command = built.binary(self.package, self.target)?.command(&libraries()?);
        command.args(self.arguments);
        Ok(Job { title: self.what.to_owned(), command, is_selection: true })
    }
}

/// Runs the jobs in order, `lanes` at a time, and counts each when it has ended.
pub(super) fn run(jobs: Vec<Job>, lanes: usize, scratch: &Scratch, tally: &mut Tally) {
    let tally = Mutex::new(tally);
    concurrently(jobs, lanes, |_, Job { title, mut command, is_selection }| {
        scratch.tell(&mut command);
        // The last of these lines name a job that hangs.
        println!("    Starting {title}");
        let start = Instant::now();
        let said = capture(&mut command);
        tally.lock().unwrap_or_else(PoisonError::into_inner).ended(title, start.elapsed(), said, is_selection);
    });
}

/// The file system in memory, on Linux.
const MEMORY: &str = "/dev/shm";

/// The free space in KiB that is required there: several times the space that the servers of a run need at a time.
const ENOUGH: u64 = 8 << 20;

/// The folder for the files of tests, which is in memory if there is enough space. A disk that stalls for seconds, as
/// on a busy machine after many writes, makes the clocks of servers jump and answers late. No test depends on the
/// behaviour of a disk.
///
/// The folder is removed when the value is dropped, except the logs of failed tests.
#[derive(Debug)]
pub(super) struct Scratch(Option<PathBuf>);

impl Scratch {
    /// Creates the folder, and prints its path.
    pub(super) fn new() -> Self {
        let free = free(Path::new(MEMORY));
        let folder = (free.is_some_and(|free| free >= ENOUGH)).then(|| {
            let folder = Path::new(MEMORY).join(format!("idempotent-{}", std::process::id()));
            // With the permissions of the system's folder, because servers of a test run as other users.
            let made =
                fs::create_dir(&folder).and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o1777)));
            made.ok().map(|()| folder)
        });
        let folder = folder.flatten();
        match &folder {
            Some(folder) => println!("xtask test: files of tests are in memory, in {}", folder.display()),
            None => println!(
                "xtask test: files of tests are on the disk: less than {} GiB are free in {MEMORY}",
                ENOUGH >> 20
            ),
        }
        Self(folder)
    }

    fn tell(&self, command: &mut Command) {
        if let Some(folder) = &self.0 {
            command.env("TMPDIR", folder);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(folder) = &self.0 else { return };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            // Files that cannot be removed are left.
            let _ = match entry.path() {
                logs if logs.ends_with("idempotent-logs") => Ok(()),
                other if other.is_dir() => fs::remove_dir_all(other),
                other => fs::remove_file(other),
            };
        }
        // Succeeds if the folder is empty.
        let _ = fs::remove_dir(folder);
    }
}

/// Returns the free space of a folder in KiB.
fn free(folder: &Path) -> Option<u64> {
    let (status, told) = capture(Command::new("df").arg("-Pk").arg(folder)).ok()?;
    status.success().then_some(())?;
    told.lines().last()?.split_whitespace().nth(3)?.parse().ok()
}

/// The counts of tests, and the output of those that failed.
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

    /// Prints and counts the whole output of one job. A job that fails without a failed test has crashed, and is one
    /// failure.
    fn ended(&mut self, title: String, took: Duration, said: io::Result<(ExitStatus, String)>, is_selection: bool) {
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
        match (is_success, passed + failed) {
            (true, 0) if is_selection => self.fail(&format!("{title}: there is no such test")),
            (true, _) => {}
            (false, _) if failed == 0 => self.fail(&format!("{title}: no result")),
            (false, _) => self.failures.push(title),
        }
        if !is_success {
            let failures: Vec<_> = said.lines().skip_while(|line| *line != "failures:").map(str::to_owned).collect();
            let more = failures.len().saturating_sub(KEPT);
            self.failures.extend(failures.into_iter().take(KEPT));
            self.failures.extend((more > 0).then(|| format!("({more} more lines above)")));
        }
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
mod tests {
    use super::*;

    #[test]
    fn each_job_is_run_once_and_counts_its_tests_and_one_failure_if_it_crashes() {
        let failures = "printf 'a\\nfailures:\\n---- b ----\\ntest result: FAILED. 1 passed; 2 failed; 0 ignored\\n'";
        let jobs = [
            "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'".to_owned(),
            format!("{failures}; exit 101"),
            "echo 'test result: ok. 4 passed; 0 failed; 0 ignored'; exit 1".to_owned(),
            "kill -9 $$".to_owned(),
            "echo '  test result: ok. 3 passed; 0 failed'; echo 'test result: fine'".to_owned(),
        ];
        let job = |script: &String| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Job { title: "x".to_owned(), command, is_selection: true }
        };
        let mut jobs: Vec<_> = jobs.iter().map(job).collect();
        jobs.push(Job { title: "x".to_owned(), command: Command::new("/no/such/program"), is_selection: true });
        let mut tally = Tally::default();
        run(jobs, 1, &Scratch(None), &mut tally);
        assert_eq!((tally.passed, tally.failed), (8, 6));
        let of_the_second = ["x", "failures:", "---- b ----", "test result: FAILED. 1 passed; 2 failed; 0 ignored"];
        let rest = ["x: no result", "x: no result", "x: there is no such test", "x: no result"];
        assert_eq!(tally.failures, [&of_the_second[..], &rest].concat());
    }
}

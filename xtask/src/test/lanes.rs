//! Parallel execution of jobs, since most tests mostly wait for servers and workers.
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::tools::capture;

/// The time without a finished job after which the running jobs are printed. One of them hangs.
const QUIET: Duration = Duration::from_secs(120);

/// A command to run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) title: String,
    pub(super) command: Command,
}

/// The result of a job.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) title: String,
    pub(super) took: Duration,
    /// The exit status and the whole output, or the error if it could not be run.
    pub(super) said: std::io::Result<(ExitStatus, String)>,
}

/// The number of parallel jobs. It is higher than the number of cores, since most tests mostly wait for servers and
/// workers.
pub(super) const LANES: usize = 4;

/// Starts the jobs in order, `lanes` at a time, and passes each to `see` when it has ended.
pub(super) fn run(jobs: Vec<Job>, lanes: usize, mut see: impl FnMut(Ended)) {
    let waiting = Mutex::new(jobs.into_iter());
    let running = Mutex::new(Vec::new());
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..lanes {
            let (tell, waiting, running) = (tell.clone(), &waiting, &running);
            scope.spawn(move || {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(Job { title, mut command }) = next else { return };
                    let of = |names: &Mutex<Vec<String>>, begins: bool| {
                        let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
                        if begins { names.push(title.clone()) } else { names.retain(|name| *name != title) }
                    };
                    of(running, true);
                    let start = Instant::now();
                    let said = capture(&mut command);
                    of(running, false);
                    let _ = tell.send(Ended { took: start.elapsed(), said, title });
                }
            });
        }
        drop(tell);
        loop {
            match told.recv_timeout(QUIET) {
                Ok(ended) => see(ended),
                Err(RecvTimeoutError::Timeout) => {
                    let names = running.lock().unwrap_or_else(PoisonError::into_inner).join("; ");
                    println!("xtask test: still running: {names}");
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn job(title: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { title: title.to_owned(), command }
    }

    #[test]
    fn each_is_run_once_and_what_it_said_is_whole() {
        let jobs = (0..20).map(|n| job(&n.to_string(), &format!("echo {n}; echo {n} >&2; exit $(({n} % 2))")));
        let mut seen = BTreeSet::new();
        run(jobs.collect(), 3, |ended| {
            let (status, said) = ended.said.unwrap();
            let number: i32 = ended.title.parse().unwrap();
            assert_eq!((status.code(), said), (Some(number % 2), format!("{number}\n{number}\n")));
            assert!(seen.insert(number));
        });
        assert_eq!(seen.len(), 20);
    }

    #[test]
    fn one_binary_runs_in_each_lane() {
        // Each job waits for the other one.
        let folder = std::env::temp_dir().join(format!("idempotent-lanes-{}", std::process::id()));
        let wait = |own: &str, other: &str| {
            let folder = folder.display();
            job(
                own,
                &format!("mkdir -p {folder}; : >{folder}/{own}; until [ -e {folder}/{other} ]; do sleep 0.01; done"),
            )
        };
        let mut ended = 0;
        run(vec![wait("one", "two"), wait("two", "one")], 2, |_| ended += 1);
        let _ = std::fs::remove_dir_all(&folder);
        assert_eq!(ended, 2);
    }

    #[test]
    fn a_binary_that_cannot_be_started_is_reported() {
        let job = Job { title: String::new(), command: Command::new("/no/such/program") };
        run(vec![job], 1, |ended| assert!(ended.said.is_err()));
    }
}

//! Selected tests of one binary, and the jobs that run them.
use std::error::Error;

use super::binary::{Binary, libraries};
use super::build::Built;
use super::lanes::{self, Job};
use super::scratch::Scratch;
use super::tally::Tally;

/// Selected tests of one binary.
pub(super) struct SelectedTests {
    pub(super) what: &'static str,
    pub(super) package: &'static str,
    pub(super) target: &'static str,
    pub(super) arguments: &'static [&'static str],
}

impl SelectedTests {
    /// Returns the job that runs these tests.
    ///
    /// # Errors
    /// The binary was not built.
    pub(super) fn of(&self, built: &Built) -> Result<Job, Box<dyn Error>> {
        let is_it = |binary: &&Binary| binary.package == self.package && binary.target == self.target;
        let binary = built.binaries().iter().find(is_it).ok_or_else(|| format!("{} was not built", self.target))?;
        let mut command = binary.command(&libraries()?);
        command.args(self.arguments);
        Ok(Job { title: self.what.to_owned(), command })
    }
}

/// Runs the jobs, `lanes` at a time. A job without a test is a failure, too: its filter no longer matches.
pub(super) fn run(mut jobs: Vec<Job>, lanes: usize, scratch: &Scratch, tally: &mut Tally) {
    jobs.iter_mut().for_each(|job| scratch.tell(&mut job.command));
    lanes::run(jobs, lanes, |ended| {
        let title = ended.title.clone();
        if tally.ended(ended) == 0 {
            tally.fail(&format!("{title}: there is no such test"));
        }
    });
}

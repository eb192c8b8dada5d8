//! The result of a stage.
use super::CHANGED;
use super::stages::Stage;
use crate::tools::some_passed;

/// The outcome of a stage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    Held,
    Failed,
    /// The run was too small to prove anything.
    Vacuous,
}

impl Outcome {
    /// Determines the outcome by the exit code that `sim` and `chaos` share. A stage that runs tests must have run
    /// some.
    pub(super) fn of(code: Option<i32>, said: &str, runs_tests: bool) -> Self {
        match code {
            Some(0) if runs_tests && !said.lines().any(some_passed) => Self::Vacuous,
            Some(0) => Self::Held,
            Some(2) => Self::Vacuous,
            _ => Self::Failed,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Failed => "FAILED",
            Self::Vacuous => "VACUOUS",
        }
    }

    pub(super) fn read(word: &str) -> Option<Self> {
        [Self::Held, Self::Failed, Self::Vacuous].into_iter().find(|outcome| outcome.word() == word)
    }
}

/// One run of a stage.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    /// The command, including seeds.
    pub(super) command: String,
    pub(super) commit: String,
    pub(super) date: String,
    pub(super) seconds: u64,
    pub(super) outcome: Outcome,
    /// The last line of the output.
    pub(super) said: String,
}

impl Entry {
    /// Returns whether this is a run of the stage's command that passed on this commit.
    pub(super) fn passed(&self, stage: &Stage, commit: &str) -> bool {
        let same = self.commit == commit && self.command == stage.shown();
        same && self.outcome == Outcome::Held && !commit.ends_with(CHANGED)
    }
}

#[cfg(test)]
impl Entry {
    /// Returns a run of the stage that held.
    pub(super) fn held(stage: &Stage, said: &str) -> Self {
        Self {
            command: stage.shown(),
            commit: "abc".to_owned(),
            date: "2026-11-28 10:00".to_owned(),
            seconds: 7,
            outcome: Outcome::Held,
            said: said.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stages;
    use super::*;

    #[test]
    fn a_run_that_tested_nothing_proves_nothing() {
        let ok = "test result: ok. 3 passed; 0 failed";
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored";
        assert_eq!(Outcome::of(Some(0), ok, true), Outcome::Held);
        assert_eq!(Outcome::of(Some(0), none, true), Outcome::Vacuous);
        assert_eq!(Outcome::of(Some(0), "", false), Outcome::Held);
        assert_eq!(Outcome::of(Some(2), "", false), Outcome::Vacuous);
        assert_eq!(Outcome::of(Some(101), ok, true), Outcome::Failed);
        assert_eq!(Outcome::of(None, "", false), Outcome::Failed);
    }

    #[test]
    fn a_stage_has_passed_only_on_its_commit_with_its_command_and_without_changes() {
        let (today, tomorrow) = (stages::all(1), stages::all(2));
        let chaos =
            |stages: &[Stage]| stages.iter().position(|stage| stage.name.starts_with("chaos")).unwrap_or_default();
        let (stage, other) = (&today[chaos(&today)], &tomorrow[chaos(&tomorrow)]);
        let entry = |outcome, commit: &str| Entry { outcome, commit: commit.to_owned(), ..Entry::held(stage, "held") };
        let held = entry(Outcome::Held, "abc");
        assert!(held.passed(stage, "abc"));
        assert!(!held.passed(stage, "other") && !held.passed(other, "abc"), "another seed is another play");
        assert!(!entry(Outcome::Held, "abc+").passed(stage, "abc+"));
        assert!(!entry(Outcome::Vacuous, "abc").passed(stage, "abc"));
    }
}

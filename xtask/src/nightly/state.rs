//! The result of each stage, kept between runs.
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::CHANGED;
use super::stages::Stage;

/// The result of a stage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    Held,
    Failed,
    /// Too little happened to prove anything.
    Vacuous,
}

impl Outcome {
    /// Decides by the exit code that `sim` and `chaos` share; a stage that runs tests has to have run some.
    pub(super) fn of(code: Option<i32>, said: &str, runs_tests: bool) -> Self {
        let ran = |line: &str| line.starts_with("test result: ok. ") && !line.starts_with("test result: ok. 0 passed");
        match code {
            Some(0) if runs_tests && !said.lines().any(ran) => Self::Vacuous,
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

    fn read(word: &str) -> Option<Self> {
        [Self::Held, Self::Failed, Self::Vacuous].into_iter().find(|outcome| outcome.word() == word)
    }
}

/// One run of a stage.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    /// The command, seeds included.
    pub(super) command: String,
    pub(super) commit: String,
    pub(super) date: String,
    pub(super) seconds: u64,
    pub(super) outcome: Outcome,
    /// The last line that it printed.
    pub(super) said: String,
}

impl Entry {
    fn to_json(&self) -> Value {
        let Self { command, commit, date, seconds, outcome, said } = self;
        let outcome = outcome.word();
        json!({ "command": command, "commit": commit, "date": date, "seconds": seconds, "outcome": outcome, "said": said })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| Some(value[name].as_str()?.to_owned());
        Some(Self {
            command: text("command")?,
            commit: text("commit")?,
            date: text("date")?,
            seconds: value["seconds"].as_u64()?,
            outcome: Outcome::read(value["outcome"].as_str()?)?,
            said: text("said")?,
        })
    }
}

/// The last run of each stage, by its name.
#[derive(Debug)]
pub(super) struct State {
    path: PathBuf,
    entries: BTreeMap<String, Entry>,
}

impl State {
    /// # Errors
    /// The file is there and cannot be read.
    pub(super) fn open(path: PathBuf) -> Result<Self, Box<dyn Error>> {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "{}".to_owned(),
            Err(error) => return Err(error.into()),
        };
        let stored: BTreeMap<String, Value> = serde_json::from_str(&text)?;
        // An entry of another form counts as not run.
        let entries = stored.iter().filter_map(|(name, value)| Some((name.clone(), Entry::from_json(value)?)));
        Ok(Self { path, entries: entries.collect() })
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Whether this command has passed on this commit.
    pub(super) fn passed(&self, stage: &Stage, commit: &str) -> bool {
        let held = |entry: &Entry| entry.outcome == Outcome::Held && entry.command == stage.shown();
        !commit.ends_with(CHANGED) && self.get(&stage.name).is_some_and(|entry| entry.commit == commit && held(entry))
    }

    /// # Errors
    /// The file cannot be written.
    pub(super) fn put(&mut self, stage: &Stage, entry: Entry) -> Result<(), Box<dyn Error>> {
        self.entries.insert(stage.name.clone(), entry);
        let all: BTreeMap<_, _> = self.entries.iter().map(|(name, entry)| (name, entry.to_json())).collect();
        Ok(fs::write(&self.path, serde_json::to_string_pretty(&all)?)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
    fn what_passed_on_a_commit_is_known_again_and_only_for_that_commit_and_command() {
        let path = std::env::temp_dir().join(format!("idempotent-nightly-{}.json", std::process::id()));
        let (today, tomorrow) = (stages::all(1), stages::all(2));
        let chaos = |stages: &[Stage]| stages.iter().position(|stage| stage.name.starts_with("chaos")).unwrap();
        let (good, bad) = (&today[chaos(&today)], &today[0]);
        let entry = |stage: &Stage, outcome| Entry {
            command: stage.shown(),
            commit: "abc".to_owned(),
            date: "2026-11-22 10:00".to_owned(),
            seconds: 7,
            outcome,
            said: "all | held".to_owned(),
        };
        let mut state = State::open(path.clone()).unwrap();
        state.put(good, entry(good, Outcome::Held)).unwrap();
        state.put(bad, entry(bad, Outcome::Vacuous)).unwrap();
        let again = State::open(path.clone()).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(again.get(&good.name), Some(&entry(good, Outcome::Held)));
        assert!(again.passed(good, "abc") && !again.passed(good, "other") && !again.passed(bad, "abc"));
        assert!(!again.passed(&tomorrow[chaos(&tomorrow)], "abc"), "another seed is another play");
        assert!(!again.passed(good, "abc+"));
    }
}

//! The results of stages, and the pages `docs/proof.md`, with the last run of each stage, and `docs/servers.md`, with those on named servers. The
//! first page is the only state of `nightly`, so a run on any machine resumes where the previous one ended.
use std::collections::BTreeMap;
use std::fmt::Write;

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

const HEAD: &str = "\
# Proof

`cargo xtask nightly` writes this page: the last run of each of its stages. A stage that has not run is listed, too.
`VACUOUS` means that too little happened to prove anything; like `FAILED` it makes the command fail. The commit is the last
one that changed more than pages of results. A `+` after a commit says that the tree had changes, or changed during the stage.

| stage | result | seconds | date (UTC) | commit | command | its last line |
|---|---|---|---|---|---|---|
";

/// Returns the whole page.
pub(super) fn page(stages: &[Stage], entries: &BTreeMap<String, Entry>) -> String {
    let mut page = HEAD.to_owned();
    for stage in stages {
        let name = &stage.name;
        // Writing to a string cannot fail.
        let _ = match entries.get(name) {
            Some(Entry { outcome, seconds, date, commit, command, said }) => {
                let (outcome, said) = (outcome.word(), said.replace('|', "\\|").replace('`', "'"));
                writeln!(page, "| {name} | {outcome} | {seconds} | {date} | {commit} | `{command}` | `{said}` |")
            }
            None => writeln!(page, "| {name} | not run | | | | `{}` | |", stage.shown()),
        };
    }
    page
}

const SERVERS: &str = "\
# Servers

`cargo xtask nightly` writes this page: the last run of each suite and chaos play on each server. `cargo xtask setup --flavours` unpacks the
servers that are not the system's. `guides/` and the documentation of each crate name what a server does differently.

| server | suite | result | passed | failed | date (UTC) | commit |
|---|---|---|---|---|---|---|
";

/// The end of the page about servers.
const UNTESTED: &str = "
## Not tested

No suite has run on these servers, which speak the same protocols. Before you rely on one of them, run the conformance tests of
`idempotent-testkit` on it.

| protocol | not tested |
|---|---|
| Redis | KeyDB, Dragonfly, Garnet, MemoryDB |
| PostgreSQL | CockroachDB, YugabyteDB, Aurora, AlloyDB, Odyssey, Supavisor |
| MySQL | TiDB, Percona Server, Aurora, Vitess, ProxySQL, MaxScale |
| AMQP 0-9-1 | LavinMQ, Qpid, Amazon MQ |
| Kafka | Apache Kafka, Redpanda, WarpStream, AutoMQ, Event Hubs |
| NATS JetStream | Synadia Cloud |
| SQS | Amazon SQS, ElasticMQ, LocalStack, Yandex Message Queue |
| RocketMQ 4 remoting | Apache RocketMQ 4 and 5 |
| DynamoDB | Amazon DynamoDB, DynamoDB Local, ScyllaDB Alternator |
";

/// Returns the page about servers.
pub(super) fn servers(stages: &[Stage], entries: &BTreeMap<String, Entry>) -> String {
    let mut page = SERVERS.to_owned();
    for stage in stages {
        let Some((suite, server)) = stage.suite_and_servers() else { continue };
        // Writing to a string cannot fail.
        let _ = match entries.get(&stage.name) {
            Some(Entry { outcome, date, commit, said, .. }) => {
                let versions = said.split_once(": ").filter(|(versions, _)| versions.contains('.'));
                let server = versions.map_or(server, |(versions, _)| versions);
                let [passed, failed] = ["passed", "failed"].map(|word| number_before(said, word));
                let outcome = outcome.word();
                writeln!(page, "| {server} | {suite} | {outcome} | {passed} | {failed} | {date} | {commit} |")
            }
            None => writeln!(page, "| {server} | {suite} | not run | | | | |"),
        };
    }
    page + UNTESTED
}

/// Returns the number before a word in the last line of a test run, or nothing.
fn number_before<'a>(said: &'a str, word: &str) -> &'a str {
    let words: Vec<_> = said.split([' ', ';', ',']).filter(|word| !word.is_empty()).collect();
    let number = words.windows(2).find(|pair| pair[1] == word).map_or("", |pair| pair[0]);
    if number.bytes().all(|byte| byte.is_ascii_digit()) { number } else { "" }
}

/// Returns the runs that a page lists, by the name of their stage. A row of another form counts as not run.
pub(super) fn read(page: &str) -> BTreeMap<String, Entry> {
    page.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<(String, Entry)> {
    let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.splitn(7, " | ").collect();
    let [name, outcome, seconds, date, commit, command, said] = cells[..] else { return None };
    let code = |cell: &str| Some(cell.strip_prefix('`')?.strip_suffix('`')?.replace("\\|", "|"));
    let entry = Entry {
        command: code(command)?,
        commit: commit.to_owned(),
        date: date.to_owned(),
        seconds: seconds.parse().ok()?,
        outcome: Outcome::read(outcome)?,
        said: code(said)?,
    };
    Some((name.to_owned(), entry))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::stages;
    use super::*;

    #[test]
    fn the_page_about_servers_has_versions_and_counts() {
        let stages = stages::all(7);
        let said = [
            ("tests", "Redis 7.0.15, RabbitMQ 3.10.8: xtask test: 812 passed, 0 failed"),
            ("MySQL store on MySQL", "MySQL 9.7.4: test result: ok. 514 passed; 2 failed; 3 ignored"),
            ("chaos mariadb on MySQL", "MySQL 9.7.4: {\"grants\":7}"),
        ];
        let of = |name: &str| stages.iter().find(|stage| stage.name == name).unwrap();
        let entries = said.map(|(name, said)| (name.to_owned(), Entry::held(of(name), said))).into();
        let page = servers(&stages, &entries);
        for row in [
            "| Redis 7.0.15, RabbitMQ 3.10.8 | tests | held | 812 | 0 | 2026-11-28 10:00 | abc |",
            "| MySQL 9.7.4 | MySQL store | held | 514 | 2 | 2026-11-28 10:00 | abc |",
            "| MySQL 9.7.4 | chaos mariadb | held |  |  | 2026-11-28 10:00 | abc |",
            "| RabbitMQ | RabbitMQ | not run | | | | |",
        ] {
            assert!(page.lines().any(|line| line == row), "{row}\n{page}");
        }
    }

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let stages = stages::all(7);
        let entry = |stage, said| Entry { outcome: Outcome::Vacuous, ..Entry::held(stage, said) };
        let said = ["all | held", "", "a ' b"];
        let entries = stages.iter().zip(said).map(|(stage, said)| (stage.name.clone(), entry(stage, said))).collect();
        assert_eq!(read(&page(&stages, &entries)), entries);
    }

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

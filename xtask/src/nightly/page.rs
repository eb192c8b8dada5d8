//! The page `docs/proof.md`, with the last run of each stage. The page is the only state of `nightly`, so a run on any
//! machine resumes where the previous one ended.
use std::collections::BTreeMap;
use std::fmt::Write;

use super::entry::{Entry, Outcome};
use super::stages::Stage;

const HEAD: &str = "\
# Proof

`cargo xtask nightly` writes this page: the last run of each of its stages. A stage that has not run is listed, too.
`VACUOUS` means that too little happened to prove anything; like `FAILED` it makes the command fail. The commit is the last
one that changed more than this page. A `+` after a commit says that the tree had changes, or changed during the stage.

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
                let said = said.replace('|', "\\|").replace('`', "'");
                writeln!(
                    page,
                    "| {name} | {} | {seconds} | {date} | {commit} | `{command}` | `{said}` |",
                    outcome.word()
                )
            }
            None => writeln!(page, "| {name} | not run | | | | `{}` | |", stage.shown()),
        };
    }
    page
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
mod tests {
    use super::super::stages;
    use super::*;

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let stages = stages::all(7);
        let entry = |stage: &Stage, said: &str| Entry {
            command: stage.shown(),
            commit: "abc".to_owned(),
            date: "2026-11-22 10:00".to_owned(),
            seconds: 7,
            outcome: Outcome::Vacuous,
            said: said.to_owned(),
        };
        let said = ["all | held", "", "a ' b"];
        let entries = stages.iter().zip(said).map(|(stage, said)| (stage.name.clone(), entry(stage, said))).collect();
        assert_eq!(read(&page(&stages, &entries)), entries);
    }
}

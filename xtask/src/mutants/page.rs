//! The page `docs/mutants.md`, with the figures of each file.
use std::collections::BTreeMap;
use std::fmt::{self, Write};

const HEAD: &str = "\
# Mutants

`cargo xtask mutants [AREA | FILE …] --write` writes this page. cargo-mutants changes one expression at a time, and some test
must fail. A mutant that does not compile is unviable. A mutant whose tests do not end counts as caught. The file
`.cargo/mutants.toml` lists mutants that no test has to detect, each with its reason.

| tests | meaning |
|---|---|
| `all` | cargo-mutants builds each mutant. The unit tests of the package run, and test suites without database servers. |
| `unit` | Only the unit tests run (`--unit`), so the suites may detect a survivor. |
| `switched` | One build contains all mutants of an area as branches (`--switched`). Each mutant runs the tests that reach its branch, also tests that take seconds, for example those of blocked runtimes. A mutant that does not compile as a branch counts as unviable too, for example in a constant function. |

With `all` and `unit`, tests that take seconds are left out, so they may detect a survivor. A file without a row has not been
mutated yet. Files that make no decision, such as texts for people, belong to no area.

| area | files | with a row |
|---|---|---|
";

const ROWS: &str = "
| file | tests | mutants | caught | unviable | survived | date (UTC) | commit |
|---|---|---|---|---|---|---|---|
";

/// The results of one file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Figures {
    pub(super) mutants: u64,
    pub(super) caught: u64,
    pub(super) unviable: u64,
    pub(super) survived: u64,
}

/// The tests that a row covers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tests {
    Unit,
    All,
    /// All tests, with all mutants of the area in one build.
    Switched,
}

impl Tests {
    const ALL: [Self; 3] = [Self::Unit, Self::All, Self::Switched];

    fn word(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::All => "all",
            Self::Switched => "switched",
        }
    }
}

/// A row of the page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Row {
    pub(super) figures: Figures,
    pub(super) tests: Tests,
    pub(super) date: String,
    pub(super) commit: String,
}

impl Figures {
    /// Returns the figures after another test set has run on the survivors. The first set runs on all mutants.
    pub(super) fn then(self, next: Self, is_first: bool) -> Self {
        if is_first {
            return next;
        }
        Self { caught: self.caught + next.caught, survived: next.survived, ..self }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mutants, caught, unviable, survived } = self;
        write!(f, "{mutants} mutants, {caught} caught, {unviable} unviable, {survived} survived")
    }
}

/// Returns the whole page. The areas are names with all files.
pub(super) fn page(rows: &BTreeMap<String, Row>, areas: &[(&str, Vec<String>)]) -> String {
    let mut page = HEAD.to_owned();
    for (area, files) in areas {
        let with_row = files.iter().filter(|file| rows.contains_key(*file)).count();
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| {area} | {} | {with_row} |", files.len());
    }
    page.push_str(ROWS);
    for (file, Row { figures: Figures { mutants, caught, unviable, survived }, tests, date, commit }) in rows {
        let tests = tests.word();
        let _ = writeln!(
            page,
            "| `{file}` | {tests} | {mutants} | {caught} | {unviable} | {survived} | {date} | {commit} |"
        );
    }
    page
}

/// Returns the rows of a page by their files. Other lines are ignored.
pub(super) fn read(page: &str) -> BTreeMap<String, Row> {
    page.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<(String, Row)> {
    let cells: Vec<_> = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ").collect();
    let [file, tests, mutants, caught, unviable, survived, date, commit] = cells[..] else { return None };
    let tests = Tests::ALL.into_iter().find(|known| known.word() == tests)?;
    let number = |cell: &str| cell.parse().ok();
    let (mutants, caught) = (number(mutants)?, number(caught)?);
    let figures = Figures { mutants, caught, unviable: number(unviable)?, survived: number(survived)? };
    let row = Row { figures, tests, date: date.to_owned(), commit: commit.to_owned() };
    Some((file.strip_suffix('`')?.to_owned(), row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let figures = Figures { mutants: 9, caught: 6, unviable: 1, survived: 2 };
        let row = Row { figures, tests: Tests::Unit, date: "2026-11-23 06:00".into(), commit: "0123456789".into() };
        let all = Row { tests: Tests::All, ..row.clone() };
        let rows = BTreeMap::from([("a/b.rs".to_owned(), row), ("c.rs".to_owned(), all)]);
        let areas = [("a", vec!["a/b.rs".to_owned(), "a/c.rs".to_owned()])];
        assert!(page(&rows, &areas).contains("| a | 2 | 1 |"));
        assert_eq!(read(&page(&rows, &areas)), rows);
    }

    #[test]
    fn a_second_test_set_sees_the_survivors() {
        let first = Figures { mutants: 9, caught: 5, unviable: 1, survived: 3 };
        let second = Figures { mutants: 3, caught: 2, unviable: 0, survived: 1 };
        let both = Figures::default().then(first, true).then(second, false);
        assert_eq!(both, Figures { mutants: 9, caught: 7, unviable: 1, survived: 1 });
    }
}

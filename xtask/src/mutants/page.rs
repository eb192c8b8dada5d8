//! The page `docs/mutants.md`, with the figures of each file.
use std::collections::BTreeMap;
use std::fmt::{self, Write};

const HEAD: &str = "\
# Mutants

`cargo xtask mutants [AREA | FILE …] --write` writes this page. cargo-mutants changes one expression at a time, and some test
must fail: a unit test of the package, or a test of its suite without database servers. A mutant that does not compile
is unviable. With `--unit`, only the unit tests run, so a survivor of such a row may be detected by the suite. A mutant that
makes the tests run for longer than a minute counts as caught. `.cargo/mutants.toml` lists
mutants that change nothing anyone can observe, each with its reason. A file without a row has not been mutated yet.

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
}

impl Tests {
    const ALL: [Self; 2] = [Self::Unit, Self::All];

    fn word(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::All => "all",
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

/// Returns the whole page.
pub(super) fn page(rows: &BTreeMap<String, Row>) -> String {
    let mut page = HEAD.to_owned();
    for (file, Row { figures: Figures { mutants, caught, unviable, survived }, tests, date, commit }) in rows {
        let tests = tests.word();
        // Writing to a string cannot fail.
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
        assert_eq!(read(&page(&rows)), rows);
    }

    #[test]
    fn a_second_test_set_sees_the_survivors() {
        let first = Figures { mutants: 9, caught: 5, unviable: 1, survived: 3 };
        let second = Figures { mutants: 3, caught: 2, unviable: 0, survived: 1 };
        let both = Figures::default().then(first, true).then(second, false);
        assert_eq!(both, Figures { mutants: 9, caught: 7, unviable: 1, survived: 1 });
    }
}

//! The page `docs/mutants.md`, with the figures of each file.
use std::collections::BTreeMap;
use std::fmt::{self, Write};

const HEAD: &str = "\
# Mutants

`cargo xtask mutants [AREA | FILE …] --write` writes this page. cargo-mutants changes one expression at a time, and some test
must fail. A mutant that does not compile is unviable. A mutant whose tests do not end counts as caught. The file
`.cargo/mutants.toml` lists mutants that no test has to detect, each with its reason.

One build contains all mutants of an area as branches. Each mutant runs the tests that reach its branch. A mutant that does not
compile as a branch counts as unviable too, for example in a constant function. A file without a row has not been mutated yet.
Files that make no decision, such as texts for people, belong to no area.

| area | files | with a row |
|---|---|---|
";

const ROWS: &str = "
| file | mutants | caught | unviable | survived | date (UTC) | commit |
|---|---|---|---|---|---|---|
";

/// The results of one file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Figures {
    pub(super) mutants: usize,
    pub(super) caught: usize,
    pub(super) unviable: usize,
    pub(super) survived: usize,
}

/// A row of the page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Row {
    pub(super) figures: Figures,
    pub(super) date: String,
    pub(super) commit: String,
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
    for (file, Row { figures: Figures { mutants, caught, unviable, survived }, date, commit }) in rows {
        let _ = writeln!(page, "| `{file}` | {mutants} | {caught} | {unviable} | {survived} | {date} | {commit} |");
    }
    page
}

/// Returns the rows of a page by their files. Other lines are ignored.
pub(super) fn read(page: &str) -> BTreeMap<String, Row> {
    page.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<(String, Row)> {
    let cells: Vec<_> = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ").collect();
    let [file, mutants, caught, unviable, survived, date, commit] = cells[..] else { return None };
    let number = |cell: &str| cell.parse().ok();
    let (mutants, caught) = (number(mutants)?, number(caught)?);
    let figures = Figures { mutants, caught, unviable: number(unviable)?, survived: number(survived)? };
    let row = Row { figures, date: date.to_owned(), commit: commit.to_owned() };
    Some((file.strip_suffix('`')?.to_owned(), row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let figures = Figures { mutants: 9, caught: 6, unviable: 1, survived: 2 };
        let row = Row { figures, date: "2026-11-23 06:00".into(), commit: "0123456789".into() };
        let rows = BTreeMap::from([("a/b.rs".to_owned(), row.clone()), ("c.rs".to_owned(), row)]);
        let areas = [("a", vec!["a/b.rs".to_owned(), "a/c.rs".to_owned()])];
        assert!(page(&rows, &areas).contains("| a | 2 | 1 |"));
        assert_eq!(read(&page(&rows, &areas)), rows);
    }
}

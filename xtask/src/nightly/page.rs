//! `docs/proof.md`: the last run of each stage.
use std::fmt::Write;

use super::stages::Stage;
use super::state::State;

const HEAD: &str = "\
# Proof

`cargo xtask nightly` writes this page: the last run of each of its stages. A stage that has not run is listed, too.
`VACUOUS` means that too little happened to prove anything; like `FAILED` it makes the command fail. A `+` after a commit
says that the tree had changes.

| stage | result | minutes | date (UTC) | commit | command | its last line |
|---|---|---|---|---|---|---|
";

/// Returns the whole page.
pub(super) fn page(stages: &[Stage], state: &State) -> String {
    let mut page = HEAD.to_owned();
    for stage in stages {
        let name = &stage.name;
        // Writing to a string does not fail.
        let _ = match state.get(name) {
            Some(entry) => writeln!(
                page,
                "| {name} | {} | {:.1} | {} | {} | `{}` | {} |",
                entry.outcome.word(),
                entry.seconds as f64 / 60.0,
                entry.date,
                entry.commit,
                entry.command,
                cell(&entry.said)
            ),
            None => writeln!(page, "| {name} | not run | | | | `{}` | |", stage.shown()),
        };
    }
    page
}

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|").replace('`', "'")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_bars_and_ticks_stays_in_its_cell() {
        assert_eq!(cell("a | `b`"), "`a \\| 'b'`");
        assert_eq!(cell(""), "");
    }
}

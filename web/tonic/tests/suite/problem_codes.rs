//! The tables of problems and codes, in the documentation and in the guide.
use std::collections::HashMap;

use idempotent_tonic::problem_code;
use idempotent_tower::ProblemKind;
use tonic::Code;

/// Returns the code of a name in the tables, such as INVALID_ARGUMENT.
fn code(name: &str) -> Option<Code> {
    let is_named = |code: &Code| format!("{code:?}").to_ascii_uppercase() == name.replace('_', "");
    (0..=16).map(Code::from).find(is_named)
}

/// Returns the rows of the table in a text, as pairs of a problem and its code.
fn rows(text: &str) -> HashMap<&str, Code> {
    let mut all = HashMap::new();
    for row in text.lines().filter_map(|line| line.trim_start_matches("///").trim().strip_prefix("| `")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let Some(code) = cells.get(1).and_then(|cell| code(cell)) else { continue };
        all.extend(cells[0].split(", ").map(|kind| (kind.trim_matches('`'), code)));
    }
    all
}

#[test]
fn each_problem_has_the_code_of_the_tables() {
    for text in [include_str!("../../src/problem_status.rs"), include_str!("../../../../guides/grpc.md")] {
        let mut rows = rows(text);
        for kind in ProblemKind::ALL {
            assert_ne!(problem_code(kind), Code::Unknown, "{kind:?}");
            assert_eq!(rows.remove(kind.code()), Some(problem_code(kind)), "{kind:?}");
        }
        assert!(rows.is_empty(), "{rows:?}");
    }
}

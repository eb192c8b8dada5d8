//! The number of crates that a new user builds first. Each crate costs seconds before the first run.
use std::collections::BTreeSet;

use crate::report::Findings;
use crate::tools::cargo;

/// A package, its role for a new user, and the maximum number of crates that it may need, including itself.
const FIRST: [(&str, &str, usize); 2] =
    [("idempotent-first", "a program on the memory store", 60), ("idempotent-consume", "README's first command", 130)];

/// Returns a line for each package that needs too many crates.
pub(super) fn first() -> Findings {
    let mut findings = Vec::new();
    for (package, what, limit) in FIRST {
        let tree = ["tree", "--locked", "--package", package, "--edges", "normal,build", "--prefix", "none"];
        let output = cargo(&tree)?.output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        // Cargo reports downloads on the other stream.
        let tree = String::from_utf8_lossy(&output.stdout);
        // Cargo marks repetitions with `(*)`.
        let crates = tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.is_empty());
        let crates = crates.collect::<BTreeSet<_>>().len();
        if crates > limit {
            findings.push(format!("{package}, {what}: {crates} crates, at most {limit}"));
        }
    }
    Ok(findings)
}

//! Checks of versions: a suite has passed on each server that the guides name, and dependencies do not need a newer Rust.
use std::collections::BTreeMap;
use std::error::Error;

use serde_json::Value;

use crate::report::Findings;
use crate::tools::{cargo, root};

/// The pages whose tables name versions.
const PAGES: [&str; 2] = ["guides/choosing.md", "guides/brokers.md"];

/// Returns a line for each version that a guide names, and on which a suite failed or none ran, as `docs/servers.md` shows.
pub(super) fn versions() -> Findings {
    let root = root()?;
    let read = |page: &str| std::fs::read_to_string(root.join(page)).map_err(|error| format!("{page}: {error}"));
    let servers = read("docs/servers.md")?;
    let mut found = Vec::new();
    for page in PAGES {
        let named = named(&read(page)?);
        if named.is_empty() {
            return Err(format!("{page} names no version of a server; adapt the check to its tables").into());
        }
        let missing = named.into_iter().filter(|server| !has_passed(&servers, server));
        found.extend(missing.map(|server| format!("{page}: {server}: a suite in docs/servers.md failed, or none ran")));
    }
    Ok(found)
}

/// Returns a line for each dependency that needs a newer Rust than `rust-version` of a published package with its default features.
pub(super) fn rust_versions() -> Findings {
    let output = |arguments: &[&str]| -> Result<String, Box<dyn Error>> {
        let output = cargo(arguments)?.output()?;
        let failed = || String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(String::from_utf8(output.stdout)?) } else { Err(failed().into()) }
    };
    let format = ["--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let metadata: Value = serde_json::from_str(&output(&[&["metadata", "--locked"], &format[..]].concat())?)?;
    let needs = |package: &Value| -> Vec<u32> {
        package["rust_version"]
            .as_str()
            .into_iter()
            .flat_map(|text| text.trim_end_matches(".0").split('.'))
            .flat_map(str::parse)
            .collect()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().ok_or("cargo metadata without packages")?;
    let known =
        packages.iter().map(|package| (format!("{} v{}", text(&package["name"]), text(&package["version"])), package));
    let known: BTreeMap<_, _> = known.collect();
    let mut found = Vec::new();
    for package in packages.iter().filter(|package| package["publish"].is_null() && package["source"].is_null()) {
        let name = text(&package["name"]);
        let tree = output(&["tree", "--locked", "--package", &name, "--edges", "normal,build", "--prefix", "none"])?;
        let dependencies = tree
            .lines()
            .filter_map(|line| line.match_indices(' ').nth(1).map_or(Some(line), |(end, _)| line.get(..end)));
        let newer = dependencies.filter(|line| known.get(*line).is_some_and(|other| needs(other) > needs(package)));
        found.extend(newer.map(|other| format!("{name}: {other} needs a newer Rust than {}", package["rust_version"])));
    }
    Ok(found)
}

/// Returns the servers with a version in the last cells of tables: `A 1.2, 1.3; B 4` are `A 1.2`, `A 1.3` and `B 4`.
fn named(readme: &str) -> Vec<String> {
    let cells = readme.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|')?.rsplit('|').next());
    let servers = cells.flat_map(|cell| cell.split("; ")).filter_map(|server| server.split_once(' '));
    let is_version = |version: &&str| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let versions = |(name, versions): (&str, &str)| {
        versions.split(", ").filter(is_version).map(|version| format!("{name} {version}")).collect::<Vec<_>>()
    };
    servers.flat_map(versions).collect()
}

/// Returns whether a suite has run on this version of a server, such as 7.0.15 for 7.0, and all of these suites have passed.
fn has_passed(page: &str, server: &str) -> bool {
    let is_it = |ran: &str| ran.strip_prefix(server).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let mut rows = rows.filter(|(servers, _)| servers.split(", ").any(is_it)).map(|(_, rest)| rest).peekable();
    rows.peek().is_some() && rows.all(|rest| rest.contains(" | held | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_last_cells_and_looked_up_among_passed_suites() {
        assert_eq!(
            named("|`A`|Redis 6.2, 7.0; Valkey 9|\n|`B`|an emulator|\ntext 1.2\n"),
            ["Redis 6.2", "Redis 7.0", "Valkey 9"]
        );
        let page = "| MariaDB 10.11.14, Redis 7.0.15 | tests | held | 5 |\n| Valkey 9.1.2 | store | FAILED | 4 |\n";
        assert!(has_passed(page, "Redis 7.0") && has_passed(page, "MariaDB 10.11.14"));
        assert!(!has_passed(page, "Redis 7.01") && !has_passed(page, "Redis 6.2") && !has_passed(page, "Valkey 9"));
    }
}

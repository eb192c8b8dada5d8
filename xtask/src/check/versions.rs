//! Check of the versions of servers in the README: a suite has passed on each of them.
use crate::report::Findings;
use crate::tools::root;

/// Returns a line for each version that the README names, and on which a suite failed or none ran, as `docs/servers.md` shows.
pub(super) fn versions() -> Findings {
    let root = root()?;
    let read = |page: &str| std::fs::read_to_string(root.join(page)).map_err(|error| format!("{page}: {error}"));
    let (readme, page) = (read("README.md")?, read("docs/servers.md")?);
    let named = named(&readme);
    if named.is_empty() {
        return Err("README.md names no version of a server; adapt the check to its tables".into());
    }
    let missing = named.into_iter().filter(|server| !has_passed(&page, server));
    Ok(missing
        .map(|server| format!("README.md: {server}: not all suites in docs/servers.md passed, or none ran"))
        .collect())
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
        let readme =
            "|store|tested on|\n|---|---|\n|`A`|Redis 6.2, 7.0; Valkey 9|\n|`B`|an emulator|\n|`C`||\ntext 1.2\n";
        assert_eq!(named(readme), ["Redis 6.2", "Redis 7.0", "Valkey 9"]);
        let page =
            "| MariaDB 10.11.14, Redis 7.0.15 | tests | held | 5 | 0 |\n| Valkey 9.1.2 | store | FAILED | 4 | 1 |\n";
        assert!(has_passed(page, "Redis 7.0") && has_passed(page, "MariaDB 10.11.14"));
        assert!(!has_passed(page, "Redis 7.01") && !has_passed(page, "Redis 6.2") && !has_passed(page, "Valkey 9"));
        let page = page.replace("FAILED", "held") + "| Valkey 9.1.2 | streams | VACUOUS | | |\n";
        assert!(has_passed(&page, "Redis 7") && !has_passed(&page, "Valkey 9.1"));
    }
}

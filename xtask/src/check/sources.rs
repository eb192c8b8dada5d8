//! Checks of the source files.
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::report::Findings;
use crate::tools::root;

type Check = (&'static str, fn() -> Findings);

pub(super) const CHECKS: [Check; 3] =
    [("file sizes", sizes), ("machine paths and registry hosts", machine), ("clocks in core", clocks)];

/// The crates that users depend on, except the facade, the test kit and the console.
pub(super) const CRATES: [&str; 21] = [
    "brokers/kafka/src",
    "brokers/nats/src",
    "brokers/pgmq/src",
    "brokers/rabbitmq/src",
    "brokers/redis-streams/src",
    "brokers/rocketmq/src",
    "brokers/sqs/src",
    "idempotent-core/src",
    "idempotent-macros/src",
    "idempotent-mq/src",
    "idempotent-redis/src",
    "operate/alert/src",
    "operate/cli/src",
    "operate/library/src",
    "operate/metrics/src",
    "operate/otel/src",
    "stores/dynamodb/src",
    "stores/sqlx/src",
    "web/actix/src",
    "web/tonic/src",
    "web/tower/src",
];

/// The maximum number of lines: a file has one subject.
const LINES: usize = 400;

fn sizes() -> Findings {
    let sources = texts(|path| path.extension().is_some_and(|extension| extension == "rs"))?;
    let long = sources.iter().map(|(path, text)| (path, text.lines().count())).filter(|(_, lines)| *lines > LINES);
    Ok(long
        .map(|(path, lines)| format!("{}: {lines} lines, limit {LINES}: split it by noun", path.display()))
        .collect())
}

/// In pieces, so that this file does not match itself.
const FOLDERS: [&str; 3] = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/")];
const HOSTS: [&str; 7] = [
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("crates.io", "-index"),
    concat!("registry.npmjs", ".org"),
    concat!("files.pythonhosted", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("deb.debian", ".org"),
];

fn machine() -> Findings {
    let mut found = Vec::new();
    for (path, text) in texts(|path| path.file_name().is_none_or(|name| name != "Cargo.lock"))? {
        for (number, line) in (1..).zip(text.lines()) {
            let folder = FOLDERS.iter().find(|folder| names_folder(line, folder));
            if let Some(what) = folder.or_else(|| HOSTS.iter().find(|host| line.contains(*host))) {
                found.push(format!("{}:{number}: `{what}` is of one machine, not of the project", path.display()));
            }
        }
    }
    Ok(found)
}

/// Returns whether the line contains the folder at the start of a path, and not as a part of an address or of a longer
/// path.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        line[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && !"._-~/*}$".contains(before))
            || line[..at].ends_with("file://")
    })
}

/// Finds direct uses of the system time. Code that does not use a `Clock` cannot be tested.
fn clocks() -> Findings {
    let core = Path::new("idempotent-core/src");
    let mut found = Vec::new();
    for (path, text) in texts(|path| path.starts_with(core) && path != core.join("clock.rs"))? {
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains("Instant::now") || code.contains("SystemTime::now") {
                found.push(format!("{}:{number}: ask the `Clock`: {}", path.display(), line.trim()));
            }
        }
    }
    Ok(found)
}

/// Returns the files that are tracked, or would be, relative to the root.
pub(crate) fn paths() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(list).current_dir(root()?).output()?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.split_terminator('\0').map(PathBuf::from).collect())
}

/// Returns the text files of [`paths`].
pub(super) fn texts(wanted: impl Fn(&Path) -> bool) -> Result<Vec<(PathBuf, String)>, Box<dyn Error>> {
    let root = root()?;
    let mut texts = Vec::new();
    for path in paths()? {
        // A file that is not UTF-8 is not a source, and a tracked file may have been deleted.
        if wanted(&path)
            && let Ok(text) = fs::read_to_string(root.join(&path))
        {
            texts.push((path, text));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_a_machine_is_found_where_a_path_starts() {
        let folder = FOLDERS[1];
        for line in [format!("{folder}me/x"), format!("see `{folder}me`"), format!("file://{folder}me")] {
            assert!(names_folder(&line, folder), "{line}");
        }
        for line in [format!("https://example.com{folder}"), format!("~{folder}"), format!("x/..{folder}")] {
            assert!(!names_folder(&line, folder), "{line}");
        }
    }
}

//! Checks of the source files.
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::report::Findings;
use crate::tools::root;

type Check = (&'static str, fn() -> Findings);

pub(super) const CHECKS: [Check; 5] = [
    ("file sizes", sizes),
    ("machine paths and registry hosts", machine),
    ("clocks in core", clocks),
    ("examples", examples),
    ("equal lines", equal_lines),
];

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
    let finding = |line: &str| {
        let folder = FOLDERS.iter().find(|folder| names_folder(line, folder));
        let what = folder.or_else(|| HOSTS.iter().find(|host| line.contains(*host)))?;
        Some(format!("`{what}` is of one machine, not of the project"))
    };
    in_lines(|path| path.file_name().is_none_or(|name| name != "Cargo.lock"), finding)
}

/// Returns the findings in the lines of the wanted files, each with its place.
fn in_lines(wanted: impl Fn(&Path) -> bool, finding: impl Fn(&str) -> Option<String>) -> Findings {
    let mut found = Vec::new();
    for (path, text) in texts(wanted)? {
        let findings = (1..).zip(text.lines()).filter_map(|(number, line)| Some((number, finding(line)?)));
        found.extend(findings.map(|(number, finding)| format!("{}:{number}: {finding}", path.display())));
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
    let finding = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        let is_found = code.contains("Instant::now") || code.contains("SystemTime::now");
        is_found.then(|| format!("ask the `Clock`: {}", line.trim()))
    };
    in_lines(|path| path.starts_with(core) && path != core.join("clock.rs"), finding)
}

/// The maximum number of lines of an example.
const EXAMPLE_LINES: usize = 150;
/// The examples with a lower limit: a name and the maximum number of lines.
const SHORTER: [(&str, usize); 1] = [("consume.rs", 120)];
/// The folders that contain examples.
const EXAMPLES: [&str; 2] = ["examples", "examples/first"];

/// Checks that an example is one short file, which starts with a sentence. Larger programs belong in `apps`.
fn examples() -> Findings {
    let is_source = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    let sources = texts(|path| path.starts_with("examples") && is_source(path))?;
    if sources.is_empty() {
        return Err("examples: no sources found; adapt the check to the new folder".into());
    }
    Ok(sources.iter().flat_map(|(path, text)| breaches(path, text)).collect())
}

/// Checks one source file below `examples`.
fn breaches(path: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let shown = path.display();
    if !EXAMPLES.iter().any(|folder| path.parent() == Some(Path::new(folder))) || is_split(text) {
        found.push(format!("{shown}: an example is one file; move a larger program to apps/"));
    }
    let lines = text.lines().count();
    let limit = SHORTER.iter().find(|(name, _)| path.ends_with(name)).map_or(EXAMPLE_LINES, |(_, limit)| *limit);
    if lines > limit {
        found.push(format!("{shown}: {lines} lines, limit {limit}; split the example by subject"));
    }
    if !starts_with_sentence(text) {
        found.push(format!("{shown}: line 1 must be a sentence: `//! Shows ….`; the first paragraph says what runs"));
    }
    found
}

/// Returns whether the source includes another file as a module.
fn is_split(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| {
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        line.starts_with("#[path") || line.starts_with("mod ") && line.ends_with(';')
    })
}

/// Returns whether the module's doc starts on the first line, with a paragraph that starts with a capital letter and ends
/// with a period.
fn starts_with_sentence(text: &str) -> bool {
    let paragraph: Vec<_> = text.lines().map_while(|line| line.strip_prefix("//! ")).collect();
    let paragraph = paragraph.join(" ");
    paragraph.starts_with(|first: char| first.is_ascii_uppercase()) && paragraph.ends_with('.')
}

/// The folders without product sources.
const OTHERS: [&str; 5] = ["apps", "benches", "examples", "fuzz", "tests"];

/// The length of the longest run that two places may share, without comments and blank lines.
const RUN_LIMIT: usize = 12;

fn equal_lines() -> Findings {
    Ok(repeated(&texts(is_product)?))
}

/// Returns whether the file is a product source. Files of tests are none.
fn is_product(path: &Path) -> bool {
    let has = |name: &str| path.iter().any(|part| part == name);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.extension().is_some_and(|end| end == "rs")
        && has("src")
        && !OTHERS.iter().any(|folder| has(folder))
        && !stem.ends_with("tests")
}

/// Returns the places that share more than [`RUN_LIMIT`] lines with an earlier place.
fn repeated(files: &[(PathBuf, String)]) -> Vec<String> {
    let mut known: BTreeMap<Vec<&str>, (&Path, usize)> = BTreeMap::new();
    let mut found = Vec::new();
    for (path, text) in files {
        let lines = code(text);
        // The windows of one run overlap, and only the first is reported.
        let mut reported = 0;
        for (at, window) in lines.windows(RUN_LIMIT + 1).enumerate() {
            let key: Vec<_> = window.iter().map(|(_, line)| *line).collect();
            let number = window[0].0;
            match known.get(&key) {
                Some((other, line)) if at >= reported => {
                    reported = at + RUN_LIMIT;
                    found.push(format!(
                        "{}:{number}: more than {RUN_LIMIT} lines equal those at {}:{line}",
                        path.display(),
                        other.display()
                    ));
                }
                Some(_) => {}
                None => drop(known.insert(key, (path, number))),
            }
        }
    }
    found
}

/// Returns the lines of code before the module `tests`, with their numbers.
fn code(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().map(str::trim).enumerate().map(|(at, line)| (at + 1, line));
    let product = lines.take_while(|(_, line)| *line != "mod tests {");
    product.filter(|(_, line)| !line.is_empty() && !line.starts_with("//")).collect()
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

    #[test]
    fn a_short_file_with_a_sentence_passes_and_each_breach_is_found() {
        let good = "//! Charges a card once.\nfn main() {}\n";
        let of = |lines: usize| good.to_owned() + &"\n".repeat(lines - good.lines().count());
        for (path, text, number) in [
            ("examples/a.rs", good, 0),
            ("examples/first/main.rs", "//! Charges a card\n//! once.\n//!\n//! More\nfn main() {}", 0),
            ("examples/a.rs", &of(150), 0),
            ("examples/a.rs", &of(151), 1),
            ("examples/consume.rs", &of(120), 0),
            ("examples/consume.rs", &of(121), 1),
            ("examples/a/queue.rs", good, 1),
            ("examples/a.rs", &format!("{good}mod queue;\n"), 1),
            ("examples/a.rs", &format!("{good}#[path = \"b/queue.rs\"]\nmod queue;\n"), 1),
            ("examples/a.rs", &format!("{good}mod tests {{\n}}\n"), 0),
            ("examples/a.rs", "fn main() {}\n", 1),
            ("examples/a.rs", "//! an example.\n", 1),
            ("examples/a.rs", "//! An example\n//!\n//! More.\n", 1),
            ("examples/a.rs", "\n//! An example.\n", 1),
        ] {
            assert_eq!(breaches(Path::new(path), text).len(), number, "{path}: {text}");
        }
    }

    fn found(first: &str, second: &str) -> usize {
        repeated(&[("a.rs".into(), first.to_owned()), ("b.rs".into(), second.to_owned())]).len()
    }

    #[test]
    fn a_run_above_the_limit_is_found_once_and_a_shorter_one_is_not() {
        let run = |lines: usize| (0..lines).map(|n| format!("    let n{n} = {n};\n")).collect::<String>();
        assert_eq!(found(&run(RUN_LIMIT), &run(RUN_LIMIT)), 0);
        assert_eq!(found(&run(RUN_LIMIT + 1), &format!("fn f() {{\n\n// A comment.\n{}}}", run(RUN_LIMIT + 1))), 1);
        assert_eq!(found(&run(RUN_LIMIT * 2), &run(RUN_LIMIT * 2)), 1);
        assert_eq!(found(&format!("mod tests {{\n{}}}", run(30)), &run(30)), 0, "tests do not count");
        assert!(is_product(Path::new("idempotent-core/src/key.rs")));
        assert!(!is_product(Path::new("idempotent-core/src/key/tests.rs")));
        assert!(!is_product(Path::new("tests/harness/src/proxy.rs")));
    }
}

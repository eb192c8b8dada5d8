//! The exit codes and the checks in the guides, and the command lines of the deployment samples, compared with the program.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use idempotent::mq::UrlForm;
use idempotent_deploy_samples::processes;
use idempotent_harness::servers::{MariaDbServer, PgBouncer, PostgresServer, RedisServer};

use crate::sqlite::file;
use crate::support::{bare, done, ran, run};

const COMMAND_LINE: &str = include_str!("../../../../guides/command-line.md");
const REFERENCE: &str = include_str!("../../../../guides/reference.md");
const BROKERS: &str = include_str!("../../../../guides/brokers.md");

/// Returns the cells of the rows below a table's header.
fn rows<'a>(guide: &'a str, header: &str) -> Vec<Vec<&'a str>> {
    let (_, table) = guide.split_once(header).unwrap_or_else(|| panic!("no table `{header}`"));
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn the_guide_and_the_help_list_the_same_exit_codes() {
    let help = done("", &["--help"]);
    let (_, list) = help.split_once("Exit codes:\n").unwrap();
    let of_help = list.lines().filter_map(|line| line.trim().split_once(' '));
    let of_help: Vec<_> = of_help.map(|(code, meaning)| vec![code, meaning.trim()]).collect();
    assert_eq!(rows(COMMAND_LINE, "| exit code | meaning |"), of_help);
    assert!(of_help.len() > 9, "{help}");
}

/// The forms of the URLs of the brokers in this build.
const FORMS: &[UrlForm] = &[
    #[cfg(feature = "rabbitmq")]
    idempotent::rabbitmq::URL_FORM,
    #[cfg(feature = "redis-streams")]
    idempotent::redis_streams::URL_FORM,
    #[cfg(feature = "nats")]
    idempotent::nats::URL_FORM,
    #[cfg(feature = "pgmq")]
    idempotent::pgmq::URL_FORM,
    #[cfg(feature = "kafka")]
    idempotent::kafka::URL_FORM,
    #[cfg(feature = "sqs")]
    idempotent::sqs::URL_FORM,
    #[cfg(feature = "rocketmq")]
    idempotent::rocketmq::URL_FORM,
];

#[test]
fn the_guide_and_the_help_have_the_parameters_of_each_url() {
    let help = done("", &["dead", "--help"]);
    for form in FORMS {
        let table = form.table();
        assert!(BROKERS.contains(&table), "guides/brokers.md lacks this table:\n\n{table}\n");
        for parameter in form.parameters {
            assert!(help.contains(&format!("{}={}: ", parameter.name, parameter.value)), "{parameter:?} in {help}");
        }
    }
}

/// Returns the stores of each check in the reference.
fn checks() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let rows = rows(REFERENCE, "| check | stores | finding | remedy |");
    let check = |row: &Vec<&'static str>| {
        assert!(row.len() == 4 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        (row[0].trim_matches('`'), row[1].split(", ").collect())
    };
    let checks: BTreeMap<_, _> = rows.iter().map(check).collect();
    assert_eq!(checks.len(), rows.len(), "a check has two rows");
    checks
}

/// Returns the checks that `doctor` prints.
fn checked(url: &str) -> BTreeSet<String> {
    let out = run(url, &["doctor"]).out;
    let check =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["check"].as_str().unwrap().to_owned();
    out.lines().map(check).collect()
}

/// Asserts that the reference has the printed checks of a store, and no other ones.
fn are_of(store: &str, printed: BTreeSet<String>) {
    let of_store = checks().into_iter().filter(|(_, stores)| stores.contains(store) || stores.contains("each"));
    let of_store: BTreeSet<_> = of_store.map(|(check, _)| check.to_owned()).collect();
    assert_eq!(printed, of_store, "{store}");
}

#[tokio::test]
async fn the_reference_has_the_checks_of_redis() {
    are_of("Redis", checked(&RedisServer::start().url()));
}

#[tokio::test]
async fn the_reference_has_the_checks_of_postgres_and_of_a_pooler() {
    let server = PostgresServer::start();
    done(&server.url(), &["migrate", "up", "--yes"]);
    let mut printed = checked(&server.url());
    let pooler = PgBouncer::start(&server, "pool_mode = transaction\n");
    printed.extend(checked(&pooler.url_of("postgres")));
    are_of("PostgreSQL", printed);
}

#[tokio::test]
async fn the_reference_has_the_checks_of_mariadb() {
    let server = MariaDbServer::start();
    done(&server.url(), &["migrate", "up", "--yes"]);
    are_of("MariaDB", checked(&server.url()));
}

#[tokio::test]
async fn the_reference_has_the_checks_of_sqlite() {
    let (_folder, url) = file().await;
    are_of("SQLite", checked(&url));
}

/// Returns the source files of a folder, without the tests.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, into),
            false if path.extension().is_some_and(|extension| extension == "rs") => into.push(path),
            false => {}
        }
    }
}

/// The calls that create a finding, whose first text is the check.
const FINDINGS: [&str; 9] = [
    "findings.ok(",
    "findings.warn(",
    "findings.refuse(",
    "findings.deny(",
    "query(",
    "finding(Severity::",
    "HealthFinding::new(",
    "HealthFinding::denied(",
    "check: ",
];

/// Returns the checks that a source text names.
fn named(source: &str) -> BTreeSet<&str> {
    let mut named = BTreeSet::new();
    for call in FINDINGS {
        for (at, _) in source.match_indices(call) {
            // A text after the end of the call, or after the arguments before a check, belongs to another one.
            let Some((before, rest)) = source[at + call.len()..].split_once('"') else { continue };
            let is_argument = before.len() < 60 && !before.contains([';', ')', '{', '}']);
            let check = rest.split('"').next().unwrap_or_default();
            let is_name = !check.is_empty() && check.bytes().all(|byte| byte.is_ascii_lowercase());
            if is_argument && is_name {
                named.insert(check);
            }
        }
    }
    named
}

#[test]
fn the_reference_has_each_check_that_the_source_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["operate/cli/src", "idempotent-redis/src", "stores/sqlx/src"] {
        sources(&root.join(folder), &mut files);
    }
    let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let named: BTreeSet<_> = texts.iter().flat_map(|text| named(text)).collect();
    assert_eq!(named, checks().into_keys().collect());
}

/// Returns the exit code of a command line, and what it printed.
fn exit(arguments: &[String]) -> (i32, String) {
    let ran = ran(bare(env!("CARGO_BIN_EXE_idempotent")).args(arguments).stdin(Stdio::null()).output().unwrap());
    (ran.code, format!("{}{}", ran.out, ran.err))
}

#[test]
fn each_command_line_of_the_samples_is_accepted_and_reaches_for_its_server() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let own = processes(checkout).unwrap().into_iter().filter(|process| process.program == "idempotent");
    let mut commands = BTreeSet::new();
    for process in own {
        let folder = tempfile::tempdir().unwrap();
        let arguments = process.runnable(folder.path()).unwrap();
        // An unknown option, an invalid value, and a missing option of the console end with exit code 2.
        let (code, text) = exit(&arguments);
        assert_eq!(code, 7, "{}: {arguments:?}: {text}", process.place);
        let unknown = [arguments, vec!["--unknown".to_owned()]].concat();
        assert_eq!(exit(&unknown).0, 2, "{}", process.place);
        let known = ["console", "doctor", "migrate", "purge"].into_iter();
        commands.extend(known.filter(|name| unknown.iter().any(|word| word == name)));
    }
    assert_eq!(commands.len(), 4, "{commands:?}");
}

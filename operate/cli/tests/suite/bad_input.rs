//! Bad input: each error names the input, the rule and the remedy, and no output contains a password.
use std::process::Stdio;

use crate::sqlite::file;
use crate::support::{bare, command, key, ran, run};

#[test]
fn each_bad_argument_is_refused_with_its_rule() {
    let good = key("o-17");
    for (arguments, code, text) in [
        (&["lst"][..], 2, "similar subcommands"),
        (&["list", "--limit", "0"], 2, "0 is not in 1..=1000"),
        (&["list", "--limit", "1001"], 2, "1001 is not in 1..=1000"),
        (&["list", "--older-than", "5"], 2, "time unit needed"),
        (&["list", "--older-than", "5 minuts"], 2, "unknown time unit \"minuts\""),
        (&["list", "--state", "done"], 2, "possible values: consuming, consumed, failed, dead, vacant"),
        (&["list", "--scope", "a*b"], 2, "a prefix that ends in `*`"),
        (&["list", "--after", "12"], 2, "a cursor has 32 hexadecimal digits"),
        (&["inspect"], 2, "<KEY"),
        (&["inspect", "orders"], 2, "expected `NAMESPACE:SCENE:SCOPE:{HASH}`"),
        (&["inspect", "shop:mq:orders:{Pv_mJFCxQoKrWCJDVdinc}"], 2, "is no storage key"),
        (&["inspect", "--scope", "orders", "--part", ""], 2, "empty"),
        (&["inspect", &good, "--part", "o-17", "--scope", "orders"], 2, "cannot be used with"),
        (&["forget", &good, "--yes"], 2, "--reason <TEXT>"),
        (
            &["forget", &good, "--yes", "--reason", "r", "--fencing", "9007199254740992"],
            2,
            "is not in 0..9007199254740992",
        ),
        (&["purge", "--limit", "0"], 2, "0 is not in 1.."),
        (&["purge", "--every", "10ms"], 2, "an interval is at least 1s"),
    ] {
        let ran = run("sqlite::memory:", arguments);
        assert!(ran.code == code && ran.err.contains(text), "{arguments:?}: {ran:?}");
    }
}

#[test]
fn each_bad_store_is_refused_without_its_password() {
    for (store, code, text) in [
        ("redis//:hunter2@cache", 2, "a colon is missing after `redis`"),
        ("redsi://u:hunter2@cache", 2, "did you mean `redis`?"),
        ("redis://u:hunter2@cache:99999", 2, "port"),
        ("memory:", 2, "belongs to its process"),
        ("@/no/such/file", 1, "cannot read a URL from `/no/such/file`"),
        ("redis://u:hunter2@127.0.0.1:1", 7, "Connection refused"),
        ("postgres://u:hunter2@127.0.0.1:1/shop", 7, "127.0.0.1"),
    ] {
        let ran = run(store, &["list"]);
        assert!(ran.code == code && ran.err.contains(text), "{store}: {ran:?}");
        assert!(!format!("{ran:?}").contains("hunter2"), "{ran:?}");
    }
    let missing = ran(bare(env!("CARGO_BIN_EXE_idempotent")).arg("list").output().unwrap());
    assert!(missing.code == 2 && missing.err.contains("set IDEMPOTENT_STORE, or pass --store URL"), "{missing:?}");
}

#[test]
fn the_most_detailed_log_contains_no_password_of_a_url() {
    // A server that accepts a connection and closes it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let queues = ["nats", "tls", "amqp", "amqps", "redis+stream", "redis+delay", "pgmq", "postgres", "mysql"];
    let stores = ["redis", "rediss", "postgres", "mysql"];
    for address in [open.to_string(), "127.0.0.1:1".to_owned()] {
        let url = |scheme: &str| format!("{scheme}://u:hunter2@{address}/0");
        let queues = queues.map(|scheme| (url(scheme), vec!["dead", "list", "--name", "orders"]));
        let stores = stores.map(|scheme| (url(scheme), vec!["list"]));
        for (url, mut command) in queues.into_iter().chain(stores) {
            let option = if command[0] == "dead" { "--queue" } else { "--store" };
            command.extend([option, &url, "-vv", "--timeout", "2s"]);
            let ran = run("", &command);
            assert!(ran.code != 0 && ran.code != 2 && !format!("{ran:?}").contains("hunter2"), "{url}: {ran:?}");
        }
    }
}

/// Runs a command whose reader has closed a stream before the first line.
pub(crate) fn closed(store: &str, arguments: &[&str], is_stdout: bool) -> std::process::Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(store, arguments);
    match is_stdout {
        true => command.stdout(writer).stderr(Stdio::piped()),
        false => command.stdout(Stdio::piped()).stderr(writer),
    };
    command.output().unwrap()
}

#[tokio::test]
async fn a_closed_stdout_is_no_error() {
    let (_folder, url) = file().await;
    let formats = ["table", "jsonl"].map(|format| ["doctor", "purge", "migrate status"].map(|c| (format, c)));
    for (format, command) in formats.into_iter().flatten() {
        let arguments: Vec<_> = command.split(' ').chain(["-o", format]).collect();
        let ended = closed(&url, &arguments, true);
        assert!(ended.status.code() == Some(0) && ended.stderr.is_empty(), "{arguments:?}: {ended:?}");
    }
    for arguments in [&["man"][..], &["completions", "zsh"], &["migrate", "sql"]] {
        let ended = closed(&url, arguments, true);
        assert!(ended.status.code() == Some(0) && ended.stderr.is_empty(), "{arguments:?}: {ended:?}");
    }
}

#[tokio::test]
async fn a_closed_stderr_hides_no_exit_code() {
    let (_folder, url) = file().await;
    let repaired = ["forget", &key("poison"), "--yes", "--reason", "why"];
    for (arguments, code) in [(&["inspect", "orders"][..], 2), (&repaired, 0), (&repaired, 6)] {
        assert_eq!(closed(&url, arguments, false).status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_bad_table_or_schema_is_refused_before_the_database_is_asked() {
    // Nothing listens there, so a command that asked the database would end with exit code 7.
    let [postgres, mysql] = ["postgres://127.0.0.1:1/shop", "mysql://127.0.0.1:1/shop"];
    let long = "a".repeat(64);
    for (store, arguments, text) in [
        (postgres, ["--table", "x\"; drop table r; --"], "table name"),
        (postgres, ["--schema", "Shop"], "schema name"),
        (postgres, ["--table", &long], "64"),
        (mysql, ["--table", "1st"], "table name"),
        (mysql, ["--schema", ""], "schema name"),
        ("tiered:postgres://127.0.0.1:1/shop|memory:", ["--table", "a-b"], "table name"),
        ("sqlite:/no/such/file.db", ["--table", "a b"], "table name"),
        ("sqlite:/no/such/file.db", ["--schema", "main"], "SQLite has no schemas"),
        ("redis://127.0.0.1:1", ["--table", "records"], "no tables"),
    ] {
        for command in ["list", "count"] {
            let ran = run(store, &[&[command], &arguments[..]].concat());
            assert!(ran.code == 2 && ran.err.contains(text), "{store} {arguments:?}: {ran:?}");
        }
    }
}

#[test]
fn the_help_of_a_command_separates_its_own_options_from_the_global_ones() {
    let global = [
        "--store",
        "--namespace",
        "--table",
        "--schema",
        "--output",
        "--timeout",
        "--read-only",
        "--quiet",
        "--verbose",
    ];
    for (arguments, own) in [
        (&["list"][..], "--state"),
        (&["forget"], "--reason"),
        (&["dead", "redrive"], "--let-go"),
        (&["order", "show"], "--part"),
    ] {
        let help = run("", &[arguments, &["--help"]].concat()).out;
        let (before, after) = help.split_once("\nGlobal options:\n").unwrap_or_else(|| panic!("{arguments:?}: {help}"));
        let (_, before) = before.split_once("\nOptions:\n").unwrap();
        assert_eq!(options(after), global, "{arguments:?}");
        let before = options(before);
        assert!(before.contains(&own) && !before.iter().any(|option| global.contains(option)), "{before:?}");
    }
}

/// Returns the long names of the options that a part of a help text describes, up to its next part.
fn options(help: &str) -> Vec<&str> {
    let lines = help.lines().take_while(|line| line.is_empty() || line.starts_with(' '));
    // `  -o, --output <FORMAT>` and `      --store <URL>`: a text begins further right.
    let described = lines.filter_map(|line| line.get(6..).filter(|rest| rest.starts_with("--")));
    described.map(|rest| rest.split([' ', '.']).next().unwrap_or_default()).collect()
}

#[test]
fn help_completions_and_the_manual_are_printed_without_a_store() {
    let help = ran(bare(env!("CARGO_BIN_EXE_idempotent")).arg("--help").output().unwrap());
    assert!(help.code == 0 && help.out.contains("idempotent list --orphaned"), "{help:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = run("", &["completions", shell]);
        assert!(completions.code == 0 && completions.out.contains("orphaned"), "{shell}: {completions:?}");
    }
    assert!(run("", &["man"]).out.contains(".TH idempotent"));
}

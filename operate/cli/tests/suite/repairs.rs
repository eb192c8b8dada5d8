//! Repairs: their guards, and their audit log.
use std::process::Command;

use crate::sqlite::file;
use crate::support::{done, key, ran, run};

const REASON: [&str; 2] = ["--reason", "stock corrected"];

fn fencing(url: &str, order: &str) -> String {
    let shown: serde_json::Value = serde_json::from_str(&done(url, &["inspect", &key(order)])).unwrap();
    shown["fencing"].to_string()
}

#[tokio::test]
async fn a_forgotten_key_is_vacant_and_the_audit_log_has_both_entries() {
    let (folder, url) = file().await;
    let (audit, poison) = (folder.path().join("audit.jsonl"), key("poison"));
    let seen = fencing(&url, "poison");
    let arguments = ["forget", &poison, "--yes", "--fencing", &seen, "--audit", audit.to_str().unwrap(), "--by", "bob"];
    done(&url, &[&arguments[..], &REASON].concat());
    assert!(done(&url, &["inspect", &poison, "-o", "table"]).contains("vacant"));

    let log = std::fs::read_to_string(audit).unwrap();
    let entries: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let fields = |entry: &serde_json::Value| {
        ["phase", "by", "via", "action", "subject", "reason"].map(|field| entry[field].as_str().unwrap().to_owned())
    };
    let expected = |phase: &str| [phase, "bob", "cli", "forget", &poison, "stock corrected"].map(str::to_owned);
    assert_eq!(entries.iter().map(fields).collect::<Vec<_>>(), [expected("intent"), expected("result")]);
    assert!(entries[0]["id"] == entries[1]["id"] && entries[1]["outcome"] == "done", "{log}");
    assert_eq!(entries[0]["fencing"].to_string(), seen);
}

#[tokio::test]
async fn a_held_key_needs_a_release_and_a_settled_one_a_forget() {
    let (_folder, url) = file().await;
    for (command, order, remedy) in [
        ("forget", "held", "9f3c02aa… holds the key: wait for its lease, or use `idempotent release`"),
        ("release", "paid", "the key is consumed: use `idempotent forget`"),
    ] {
        let ran = run(&url, &[&[command, &key(order), "--yes"], &REASON[..]].concat());
        assert!(ran.code == 6 && ran.err.contains(remedy), "{ran:?}");
    }
    done(&url, &[&["release", &key("held"), "--yes"], &REASON[..]].concat());
    let released = done(&url, &["inspect", &key("held")]);
    assert!(released.contains("\"state\":\"vacant\"") && !released.contains("forgotten"), "{released}");
    for command in ["forget", "release"] {
        let ran = run(&url, &[&[command, &key("held"), "--yes"], &REASON[..]].concat());
        let (what, then) = ("the key is vacant (made claimable by an operator)", "send or redrive its message");
        assert!(ran.code == 6 && ran.err.contains(what) && ran.err.contains(then), "{ran:?}");
    }
}

#[tokio::test]
async fn a_dry_run_creates_no_audit_file() {
    let (folder, url) = file().await;
    let audit = folder.path().join("audit.jsonl");
    let options = ["--audit", audit.to_str().unwrap(), "--reason", "a look"];
    for (command, order) in [("forget", "paid"), ("release", "held")] {
        done(&url, &[&[command, &key(order), "--dry-run"], &options[..]].concat());
        assert!(!audit.exists(), "{command}");
    }
    done(&url, &[&["forget", &key("paid"), "--yes"], &options[..]].concat());
    assert!(audit.exists());
}

#[tokio::test]
async fn without_a_matching_number_a_confirmation_or_the_right_to_write_nothing_is_changed() {
    let (folder, url) = file().await;
    let folder = folder.path().to_str().unwrap();
    let paid = key("paid");
    for (arguments, code, text) in [
        (&["--yes", "--fencing", "7"][..], 6, "the fencing number is"),
        (&[], 6, "stdin is no terminal: pass --yes"),
        (&["--yes", "--read-only"], 6, "--read-only forbids this command"),
        (&["--dry-run"], 0, "dry run"),
        (&["--yes", "--audit", folder], 1, "cannot open the audit log"),
        (&["--yes", "--by", "a\nb"], 2, "invalid author"),
    ] {
        let ran = run(&url, &[&["forget", &paid], &REASON[..], arguments].concat());
        assert!(ran.code == code && ran.err.contains(text), "{arguments:?}: {ran:?}");
        assert!(done(&url, &["inspect", &paid]).contains("\"state\":\"consumed\""), "{arguments:?}");
    }
}

#[tokio::test]
async fn only_a_dry_run_needs_no_author_and_no_reason() {
    let (_folder, url) = file().await;
    let paid = key("paid");
    for (more, code, text) in [("--dry-run", 0, "dry run"), ("--yes", 2, "no author: pass --by NAME")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idempotent"));
        command.env_clear().args(["forget", &paid, "--store", &url, more]);
        command.args(if code == 0 { &[] } else { &REASON[..] });
        let ran = ran(command.output().unwrap());
        assert!(ran.code == code && ran.err.contains(text), "{more}: {ran:?}");
        assert!(done(&url, &["inspect", &paid]).contains("\"state\":\"consumed\""), "{more}");
    }
}

#[tokio::test]
async fn an_absent_key_is_not_found() {
    let (_folder, url) = file().await;
    for command in [&["inspect"][..], &["forget", "--yes", "--reason", "r"], &["release", "--yes", "--reason", "r"]] {
        let ran = run(&url, &[command, &[&key("unknown")]].concat());
        assert!(ran.code == 4 && ran.err.contains("never claimed, has expired, or was deleted"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_purge_removes_only_expired_records() {
    let (_folder, url) = file().await;
    let purged: serde_json::Value = serde_json::from_str(&done(&url, &["purge"])).unwrap();
    assert_eq!(purged, serde_json::json!({ "removed": 0, "done": true }));
    assert!(done(&url, &["count"]).contains("\"examined\":4"));
}

#[cfg(unix)]
#[tokio::test]
async fn a_repeated_purge_ends_between_two_rounds_by_a_signal() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let (_folder, url) = file().await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_idempotent"));
    command.env_clear().env("IDEMPOTENT_STORE", &url).args(["purge", "--every", "1s"]).stdout(Stdio::piped());
    let mut purge = command.spawn().unwrap();
    let lines = BufReader::new(purge.stdout.take().unwrap()).lines().take(2);
    // The second round follows an interval.
    assert_eq!(lines.map(Result::unwrap).collect::<Vec<_>>(), [r#"{"done":true,"removed":0}"#; 2]);
    assert!(Command::new("kill").arg(purge.id().to_string()).status().unwrap().success());
    assert_eq!(purge.wait().unwrap().code(), Some(143));
}

//! Inspection over an SQLite file, also on a terminal.
use std::process::{Command, Stdio};

use crate::bad_input::closed;
use crate::support::{Ran, done, fill, key, ran, run, sqlite_url};

/// Creates a file with the records of [`fill`], and returns its folder and URL.
pub(crate) async fn file() -> (tempfile::TempDir, String) {
    let (folder, url) = sqlite_url();
    fill(&idempotent::connect(&url).await.unwrap()).await;
    closes(&folder).await;
    (folder, url)
}

/// Waits for the last connection, which closes in the background, and moves its journal into the file.
async fn closes(folder: &tempfile::TempDir) {
    while folder.path().join("records.db-wal").exists() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_key_is_shown_by_its_text_and_by_its_parts_without_its_result() {
    let (_folder, url) = file().await;
    let by_text = done(&url, &["inspect", &key("paid"), "-o", "table"]);
    let by_parts = done(&url, &["show", "--scope", "orders", "--part", "paid", "-o", "table"]);
    for shown in [&by_text, &by_parts] {
        assert!(shown.contains(&key("paid")) && shown.contains("consumed"), "{shown}");
        assert!(shown.contains("result     16 bytes") && !shown.contains("secret"), "{shown}");
    }
}

#[tokio::test]
async fn a_held_key_shows_its_lease_and_hostile_text_is_escaped() {
    let (_folder, url) = file().await;
    let shown = done(&url, &["inspect", &key("held"), "-o", "table"]);
    assert!(shown.contains("owner      9f3c02aa…") && shown.contains("lease      ends in 9m"), "{shown}");
    assert!(shown.contains("order \\u{1b}[31mheld\\u{202e}"), "{shown}");
    assert!(shown.bytes().all(|byte| byte >= 0x20 || byte == b'\n'), "{shown:?}");
}

#[tokio::test]
async fn listings_select_by_state_and_pages_end() {
    let (_folder, url) = file().await;
    let keys = |arguments: &[&str]| {
        let listed = done(&url, &[&["list", "-o", "key"], arguments].concat());
        let mut keys: Vec<_> = listed.lines().map(str::to_owned).collect();
        keys.sort();
        keys
    };
    let of = |orders: &[&str]| {
        let mut keys: Vec<_> = orders.iter().map(|order| key(order)).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&[]), of(&["held", "lost", "poison"]));
    assert_eq!(keys(&["--state", "dead,failed"]), of(&["lost", "poison"]));
    assert_eq!(keys(&["--state", "consumed", "--scope", "ord*"]), of(&["paid"]));
    assert_eq!(keys(&["--orphaned"]), of(&[]));
    assert_eq!(keys(&["--scope", "invoices"]), of(&[]));
    assert_eq!(keys(&["--all", "--limit", "1", "--budget", "1"]), of(&["held", "lost", "poison"]));
    assert_eq!(keys(&["--limit", "1"]).len(), 1);
    assert_eq!(keys(&["--namespace", "shop"]), of(&[]));
}

#[tokio::test]
async fn json_lines_end_with_the_cursor_of_the_next_page() {
    let (_folder, url) = file().await;
    let states = "consuming,consumed,failed,dead";
    let (mut after, mut keys) = (None::<String>, Vec::new());
    loop {
        let mut arguments = vec!["list", "--state", states, "--limit", "3"];
        arguments.extend(after.iter().flat_map(|cursor| ["--after", cursor.as_str()]));
        let mut next = None;
        for line in done(&url, &arguments).lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            match line["key"].as_str() {
                Some(key) => keys.push(key.to_owned()),
                None => next = Some(line["next"].as_str().unwrap().to_owned()),
            }
        }
        after = next;
        if after.is_none() {
            break;
        }
    }
    keys.sort();
    let mut all = ["held", "lost", "paid", "poison"].map(key);
    all.sort();
    assert_eq!(keys, all);
}

#[tokio::test]
async fn counts_are_exact_or_lower_bounds() {
    let (_folder, url) = file().await;
    let counts = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&done(&url, &[&["count"], arguments].concat())).unwrap()
    };
    let exact =
        serde_json::json!({ "counts": { "consuming": 1, "dead": 1, "failed": 1 }, "exact": true, "examined": 4 });
    assert_eq!(counts(&[]), exact);
    let bounded = counts(&["--budget", "2", "--state", "consuming,consumed,failed,dead"]);
    assert_eq!((&bounded["exact"], &bounded["examined"]), (&false.into(), &2.into()));
}

#[tokio::test]
async fn a_long_count_prints_its_progress_unless_it_is_quiet() {
    let (_folder, url) = file().await;
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    let expired = "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM number WHERE n<120000) \
        INSERT INTO idempotent_record (id, v, name, state, fencing, attempt, until_at, expires_at, first_seen, updated_at) \
        SELECT randomblob(16), v, name, state, fencing, attempt, until_at, 1, first_seen, updated_at \
        FROM number, (SELECT * FROM idempotent_record WHERE state=3 LIMIT 1)";
    assert_eq!(sqlx::query(expired).execute(&pool).await.unwrap().rows_affected(), 120_000);
    pool.close().await;
    let count = |arguments: &[&str]| run(&url, &[&["count", "--rate", "0"], arguments].concat());
    let (noted, quiet) = (count(&[]), count(&["--quiet"]));
    assert_eq!(noted.err.matches(" records so far").count(), 2, "{}", noted.err);
    assert!(noted.err.contains("50000 records so far") && quiet.err.is_empty(), "{} {}", noted.err, quiet.err);
    assert!(noted.out.contains("\"examined\":120004") && noted.out == quiet.out, "{}", noted.out);
    let part = count(&["--budget", "70000"]);
    assert!(part.out.contains("\"exact\":false,\"examined\":70000"), "{}", part.out);
}

/// Damages the record of `lost` in the file of this URL.
pub(crate) async fn damage(url: &str) {
    let pool = sqlx::SqlitePool::connect(url).await.unwrap();
    let damaged =
        sqlx::query("UPDATE idempotent_record SET fencing = -1 WHERE state = 3").execute(&pool).await.unwrap();
    assert_eq!(damaged.rows_affected(), 1);
    pool.close().await;
}

#[tokio::test]
async fn an_unreadable_record_is_listed_and_counted_with_its_reason_and_ends_no_page() {
    let (_folder, url) = file().await;
    damage(&url).await;
    let lines = |arguments: &[&str]| -> Vec<serde_json::Value> {
        let listed = done(&url, &[&["list", "--all"], arguments].concat());
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for limit in ["1", "50"] {
        let all = lines(&["--limit", limit]);
        assert_eq!(all.len(), 3, "{all:?}");
        let unreadable: Vec<_> = all.iter().filter(|line| line["state"] == "unreadable").collect();
        assert_eq!((unreadable.len(), &unreadable[0]["key"]), (1, &key("lost").into()));
        assert!(unreadable[0]["reason"].as_str().unwrap().contains("field `fencing`"), "{unreadable:?}");
    }
    assert_eq!(lines(&["--state", "unreadable"]).len(), 1);
    assert_eq!(lines(&["--state", "dead"]).len(), 1);
    let table = done(&url, &["list", "--state", "unreadable", "-o", "table"]);
    assert!(table.contains(&format!("{}  (", key("lost"))) && table.contains("field `fencing`"), "{table}");
    assert_eq!(done(&url, &["list", "--state", "unreadable", "-o", "key"]).trim_end(), key("lost"));
    let counts: serde_json::Value = serde_json::from_str(&done(&url, &["count"])).unwrap();
    assert_eq!(counts["counts"], serde_json::json!({ "consuming": 1, "dead": 1, "unreadable": 1 }));
}

#[tokio::test]
async fn a_reader_that_closes_stdout_ends_a_listing_and_a_count_quietly() {
    let (_folder, url) = file().await;
    // The last command prints only a cursor, on the next line of a page without keys.
    let cursor = &["list", "--orphaned", "--budget", "1"];
    for arguments in [&["list"][..], &["list", "--limit", "1"], &["count"], &["count", "-o", "table"], cursor] {
        let ended = closed(&url, arguments, true);
        assert!(ended.status.code() == Some(0) && ended.stderr.is_empty(), "{arguments:?}: {ended:?}");
    }
}

#[tokio::test]
async fn records_of_another_table_are_listed_by_its_name() {
    let (folder, url) = sqlite_url();
    fill(&idempotent::connect(&url).table("shop_record").await.unwrap()).await;
    closes(&folder).await;
    assert_eq!(done(&url, &["list", "--table", "shop_record"]).lines().count(), 3);
    let ran = run(&url, &["list"]);
    assert!(ran.code == 5 && ran.err.contains("`idempotent_record`"), "{ran:?}");
    assert!(done(&url, &["migrate", "status", "--table", "shop_record"]).contains("shop_record"));
}

#[tokio::test]
async fn reading_does_not_change_the_file_and_creates_none() {
    let (folder, url) = file().await;
    let path = folder.path().join("records.db");
    let before = std::fs::read(&path).unwrap();
    done(&url, &["list"]);
    done(&url, &["count"]);
    done(&url, &["inspect", &key("held")]);
    done(&url, &["forget", &key("paid"), "--dry-run", "--reason", "a look"]);
    assert!(std::fs::read(&path).unwrap() == before, "the file has changed");

    let missing = folder.path().join("record.db");
    let ran = run(&format!("sqlite:{}", missing.display()), &["list"]);
    assert!(ran.code == 5 && ran.err.contains("is missing") && !missing.exists(), "{ran:?}");
}

/// Runs the command line under a pseudo terminal, on which stdout and stderr are one stream.
fn on_terminal(store: &str, command_line: &str) -> Ran {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("\"$PROGRAM\" {command_line}"), "/dev/null"]).stdin(Stdio::null()).env_clear();
    command.env("PROGRAM", env!("CARGO_BIN_EXE_idempotent")).env("IDEMPOTENT_STORE", store).env("USER", "ann");
    command.env("PATH", "/usr/bin:/bin");
    ran(command.output().unwrap())
}

#[tokio::test]
async fn a_terminal_shows_tables_and_a_log_without_colours() {
    let (_folder, url) = file().await;
    let listed = on_terminal(&url, "list");
    assert!(listed.code == 0 && listed.out.contains("STATE") && listed.out.contains(&key("held")), "{listed:?}");

    let forget = format!("forget '{}' --yes --reason 'stock corrected'", key("poison"));
    let forgotten = on_terminal(&url, &forget);
    assert!(forgotten.code == 0 && forgotten.out.contains("idempotent::audit"), "{forgotten:?}");
    assert!(!forgotten.out.contains('\u{1b}'), "{forgotten:?}");
}

//! The commands for outboxes.
use std::fs;

use idempotent::Outbox;
use idempotent::mq::OutboundMessage;
use idempotent::outbox::OutboxDb;
use idempotent::sqlx::{self, AssertSqlSafe, Executor, MySqlPool, PgPool, Pool};
use idempotent_harness::servers::{MariaDbServer, PostgresServer};
use serde_json::{Value, json};

use crate::support::{Ran, run_without_store as run, sqlite_pool};

/// An outbox with four messages: `p-0` and `p-3` are unsent, `p-1` is dead, and `p-2` is confirmed.
struct Site<'a> {
    url: &'a str,
}

impl Site<'_> {
    fn outbox(&self, arguments: &[&str]) -> Ran {
        run(&[&["outbox"], arguments, &["--outbox", self.url]].concat())
    }

    fn ids(&self, status: &str) -> String {
        self.outbox(&["list", "--status", status, "-o", "key"]).out
    }

    fn is_counted_and_listed(&self) {
        let counted = &self.outbox(&["status"]).lines()[0];
        let exact = |number: u64| json!({ "at_least": number, "exact": true });
        let numbers = ["unsent", "unconfirmed", "due", "leased", "held_back", "dead"].map(|name| counted[name].clone());
        assert_eq!(numbers, [2, 0, 2, 0, 0, 1].map(exact));
        assert!(counted["oldest_unsent_ms"].is_u64(), "{counted}");
        let table = self.outbox(&["status", "-o", "table"]).out;
        assert!(table.contains("unsent         2\n") && table.contains("held back      0\n"), "{table}");

        let page = self.outbox(&["list", "--limit", "1"]).lines();
        assert_eq!((&page[0]["id"], &page[0]["status"]), (&"p-0".into(), &"unconfirmed".into()));
        let next = page[1]["next"].to_string();
        let last = self.outbox(&["list", "--after", &next]).lines();
        assert_eq!((last.len(), &last[0]["id"], &last[0]["topic"]), (1, &"p-3".into(), &"payments".into()));
        let table = self.outbox(&["list", "--status", "dead", "-o", "table"]).out;
        assert!(table.contains("LAST ERROR") && table.contains("p-1"), "{table}");
    }

    fn is_shown(&self) {
        let shown = self.outbox(&["show", "p-0"]);
        let message = &shown.lines()[0];
        let header = &message["headers"][0];
        assert_eq!(
            (&header["name"], &header["bytes"], &message["body_bytes"]),
            (&"trace".into(), &6.into(), &8.into())
        );
        assert!(!shown.out.contains("secret") && message.get("body").is_none(), "{shown:?}");
        let table = self.outbox(&["show", "p-0", "--show-body", "-o", "table"]);
        assert!(table.out.ends_with("\nsecret\\u{1b}0\n"), "{table:?}");
        self.outbox(&["show", "p-9"]).fails(4, "no message has the id `p-9`");
    }

    fn is_changed(&self) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let change = |action: &str, more: &[&str]| {
            self.outbox(&[&[action, "--reason", "the queue is bound", "--audit", path], more].concat())
        };
        change("resend", &["p-1"]).fails(6, "pass --yes");
        self.outbox(&["resend", "p-1", "--dry-run"]).fails(0, "would change 1 message");
        change("resend", &["p-1", "p-2", "--yes"]).fails(6, "the message `p-2` is confirmed");
        change("void", &["p-1", "p-9", "--yes"]).fails(4, "p-9");
        change("void", &["p-1", "--yes", "--read-only"]).fails(6, "--read-only");
        assert_eq!((self.ids("dead").as_str(), fs::read_to_string(path).unwrap().as_str()), ("p-1\n", ""));

        change("resend", &["p-1", "--yes"]).fails(0, "resend of 1 of 1 message");
        assert_eq!(self.ids("unconfirmed"), "p-0\np-1\np-3\n");
        change("void", &["p-0", "p-1", "--yes"]).fails(0, "void of 2 of 2 messages");
        assert_eq!([self.ids("unconfirmed"), self.ids("void")], ["p-3\n", "p-0\np-1\n"]);
        let audit = self.outbox(&["show", "p-1"]).lines()[0]["audit"].clone();
        let actions = [&audit[0], &audit[1]].map(|entry| (entry["action"].clone(), entry["by"].clone()));
        assert_eq!(actions, [("resend".into(), "tester".into()), ("void".into(), "tester".into())]);
        let log = fs::read_to_string(path).unwrap();
        let entries = log.lines().map(|line| serde_json::from_str(line).unwrap());
        let entry = |entry: Value| format!("{} {} {}", entry["action"], entry["subject"], entry["outcome"]);
        let expected = [("resend", "p-1"), ("void", "p-0"), ("void", "p-1")];
        let expected =
            expected.map(|(action, id)| ["null", "\"done\""].map(|outcome| format!("\"{action}\" \"{id}\" {outcome}")));
        assert_eq!(entries.map(entry).collect::<Vec<_>>(), expected.concat());
    }

    fn is_purged(&self) {
        self.outbox(&["purge", "--older-than", "6d"]).fails(6, "pass --allow-resend");
        self.outbox(&["purge", "--read-only"]).fails(6, "--read-only");
        assert_eq!(self.outbox(&["purge"]).lines()[0], json!({ "removed": 1, "done": true }));
        assert_eq!(self.ids("confirmed"), "");
        let table = self.outbox(&["purge", "-o", "table"]).out;
        assert_eq!(table, "removed 0 messages; no older message is left\n");
    }
}

async fn is_operated<Db: OutboxDb>(pool: Pool<Db>, url: &str)
where
    for<'c> &'c Pool<Db>: Executor<'c>,
{
    let site = Site { url };
    site.outbox(&["status"]).fails(5, "idempotent_outbox");
    let outbox = Outbox::builder(pool.clone()).create(true).open().await.unwrap();
    for number in 0..4 {
        let mut transaction = pool.begin().await.unwrap();
        let message = OutboundMessage::new("payments", format!("p-{number}"), *b"secret\x1b0");
        outbox.enqueue(&mut transaction, &message.header("trace", "secret")).await.unwrap();
        transaction.commit().await.unwrap();
    }
    for statement in ["status=3,due_at=NULL WHERE seq=2", "status=1,due_at=NULL,settled_at=1 WHERE seq=3"] {
        let statement = format!("UPDATE idempotent_outbox SET {statement}");
        pool.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.unwrap();
    }
    site.is_counted_and_listed();
    site.is_shown();
    site.is_changed();
    site.is_purged();
    let other = ["status", "--name", "payments"];
    site.outbox(&other).fails(5, "payments");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_in_sqlite_is_operated() {
    let (_folder, url, pool) = sqlite_pool().await;
    is_operated(pool, &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_in_postgres_is_operated() {
    let server = PostgresServer::start();
    let url = server.url();
    is_operated(PgPool::connect(&url).await.unwrap(), &url).await;
    server.kill();
    Site { url: &url }.outbox(&["status"]).fails(7, "Connection refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_in_mariadb_is_operated() {
    let server = MariaDbServer::start();
    let url = server.url();
    is_operated(MySqlPool::connect(&url).await.unwrap(), &url).await;
}

#[test]
fn a_bad_argument_is_refused_before_the_database_is_asked() {
    let url = "postgres://u:s3cret@127.0.0.1:1/shop";
    for (arguments, code, text) in [
        (vec!["status"], 2, "set IDEMPOTENT_OUTBOX, or pass --outbox URL"),
        (vec!["status", "--outbox", "redis://u:s3cret@localhost"], 2, "is no URL of a database"),
        (vec!["status", "--outbox", url, "--name", "x\"; drop table y"], 2, "is no name of a table"),
        (vec!["status", "--outbox", url], 7, "Connection refused"),
        (vec!["list", "--outbox", url, "--status", "lost"], 2, "possible values: unconfirmed, confirmed, void, dead"),
        (vec!["list", "--outbox", url, "--limit", "10001"], 2, "1..=10000"),
        (vec!["resend", "--outbox", url, "--reason", "why"], 2, "<ID>"),
        (vec!["void", "--outbox", url, "p-1"], 2, "--reason <TEXT>"),
        (vec!["purge", "--outbox", url, "--older-than", "5"], 2, "time unit needed"),
        (vec!["purge", "--outbox", url, "--limit", "0"], 2, "0 is not in 1.."),
    ] {
        let run = run(&[&["outbox"], &arguments[..]].concat());
        run.fails(code, text);
        assert!(!run.err.contains("s3cret"), "{run:?}");
    }
    for command in ["status", "list", "show", "resend", "void", "purge"] {
        let help = run(&["outbox", command, "--help"]);
        assert!(help.code == 0 && help.out.contains(&format!("  idempotent outbox {command} ")), "{help:?}");
    }
}

//! A relay whose file is locked by another process for a while.
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use idempotent_mq::PublishErrorKind;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};

use super::common::outage::{Outage, pool, put};
use crate::outbox::broker::Says;
use crate::outbox::logs::until;

const FILE: &str = "IDEMPOTENT_SQLX_TEST_LOCKED_FILE";

/// Runs the other process, which executes this binary. Does nothing without a file.
#[tokio::test]
#[allow(clippy::print_stdout, reason = "its parent reads it")]
async fn child() {
    let Ok(file) = std::env::var(FILE) else { return };
    let locking = pool(SqliteConnectOptions::new().filename(file)).await;
    // No relay holds it: it becomes due under the lock, and stays due.
    let free = "SELECT count(*) FROM idempotent_outbox WHERE sent_at IS NULL AND lease_until = 0";
    let _locked = loop {
        let mut locked = locking.begin_with("BEGIN EXCLUSIVE").await.unwrap();
        if sqlx::query_scalar::<_, i64>(free).fetch_one(&mut *locked).await.unwrap() == 1 {
            break locked;
        }
        locked.rollback().await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    println!("locked");
    // Until it is killed.
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_relay_outlives_a_file_that_another_process_has_locked_and_tells_of_it_once() {
    for mode in [SqliteJournalMode::Delete, SqliteJournalMode::Wal] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.db");
        let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true).journal_mode(mode);
        let options = options.busy_timeout(Duration::from_millis(100));
        let outage = Outage::of(options.clone()).await;
        outage.sends(pool(options.clone()).await, "at first").await;
        // With a write-ahead log only who writes is kept out: this one is to be sent again and again.
        outage.broker.say_of("waits", Says::Fails(PublishErrorKind::Unsent));
        let direct = pool(options.clone().busy_timeout(Duration::from_secs(60))).await;
        put(&direct, "waits").await;
        let failed = "SELECT count(*) FROM idempotent_outbox WHERE failures > 0 AND lease_until = 0";
        let failed = async || sqlx::query_scalar::<_, i64>(failed).fetch_one(&direct).await.unwrap() == 1;
        until(failed, "it is to be sent again").await;

        let mut other = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "outbox::sqlite::outages::child", "--nocapture"])
            .env(FILE, &file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(other.stdout.take().unwrap()).lines();
        let locks = move || lines.map_while(Result::ok).any(|line| line.ends_with("locked"));
        assert!(tokio::task::spawn_blocking(locks).await.unwrap());
        outage.has_told(1, 0).await;
        outage.tries_again_and_says_no_more().await;
        outage.broker.say_of("waits", Says::Somewhere);
        assert_eq!(outage.broker.ids(), ["at first"]);
        other.kill().unwrap();
        other.wait().unwrap();
        outage.has_told(1, 1).await;
        outage.has_sent(&direct, "waits").await;
        outage.sends(direct, "after the lock").await;
        outage.ends_with(&["after the lock", "at first", "waits"]).await;
    }
}

//! Dead letters of delay tables.
use std::time::Duration;

use idempotent::delay::{DelayDb, DelayTable, DelayTableSource, ScheduledTask};
use idempotent::mq::DeadLetters;
use idempotent::sqlx::{MySqlPool, PgPool, Pool};
use idempotent_harness::servers::{MariaDbServer, PostgresServer};

use crate::dead::site::{BODIES, REASONS, Site, bury, comes_back};
use crate::support::sqlite_pool;

/// Writes the letters, each with the id `PREFIX-NUMBER`.
async fn write<Db: DelayDb>(table: &DelayTable<Db>, source: &mut DelayTableSource<Db>, prefix: &str) {
    for (number, body) in BODIES.iter().enumerate() {
        let task =
            ScheduledTask::after(format!("{prefix}-{number}"), Duration::ZERO, *body).header("trace", *b"secret");
        table.put(&task).await.unwrap();
        bury(source, REASONS[number], None).await;
    }
}

async fn are_listed_redriven_and_removed<Db: DelayDb>(pool: Pool<Db>, url: &str) {
    let site = Site { queue: &["--queue", url, "--name", "limits"] };
    let missing = site.dead("list", &[]);
    missing.fails(5, "limits");
    let table = DelayTable::builder(pool).table("limits").create(true).open().await.unwrap();
    let mut source = table.source();
    write(&table, &mut source, "m").await;
    assert_eq!(site.is_listed(), ["m-0", "m-1", "m-2"]);
    site.is_redriven();
    comes_back(&mut source, BODIES[0]).await;
    let rest = ["--limit", "9", "--reason", "why", "--yes"];
    assert_eq!(site.dead("discard", &rest).lines().last().unwrap()["discarded"], 2);
    write(&table, &mut source, "n").await;
    site.is_discarded();
    let mut letters = idempotent::delay::DelayTableDeadLetters::new(&table);
    assert_eq!(letters.count().await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_delay_table_in_sqlite_are_listed_redriven_and_removed() {
    let (_folder, url, pool) = sqlite_pool().await;
    are_listed_redriven_and_removed(pool, &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_command_prints_its_progress_unless_it_is_quiet() {
    let (_folder, url, pool) = sqlite_pool().await;
    let table = DelayTable::builder(pool).table("limits").create(true).open().await.unwrap();
    let mut source = table.source();
    for number in 0..201 {
        table.put(&ScheduledTask::after(format!("m-{number}"), Duration::ZERO, "1")).await.unwrap();
        bury(&mut source, REASONS[0], None).await;
    }
    let site = Site { queue: &["--queue", &url, "--name", "limits"] };
    let discard = |more: &[&str]| {
        let common = ["--limit", "100", "--reason", "why", "--yes"];
        let ran = site.dead("discard", &[&common, more].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.err
    };
    let (noted, quiet) = (discard(&[]), discard(&["--quiet"]));
    assert_eq!((noted.matches(" letters so far").count(), noted.contains("100 letters so far")), (1, true), "{noted}");
    assert!(!quiet.contains("so far"), "{quiet}");
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_delay_table_in_postgres_are_listed_redriven_and_removed() {
    let server = PostgresServer::start();
    let url = server.url();
    are_listed_redriven_and_removed(PgPool::connect(&url).await.unwrap(), &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_delay_table_in_mariadb_are_listed_redriven_and_removed() {
    let server = MariaDbServer::start();
    let url = server.url();
    are_listed_redriven_and_removed(MySqlPool::connect(&url).await.unwrap(), &url).await;
    let denied = url.replacen("root@", "stranger:s3cret@", 1);
    let site = Site { queue: &["--queue", &denied, "--name", "limits"] };
    let refused = site.dead("list", &[]);
    refused.fails(8, "limits on mysql://stranger:***@");
    assert!(!refused.err.contains("s3cret"), "{refused:?}");
}

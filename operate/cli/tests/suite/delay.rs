//! The command `delay status`.
use std::time::Duration;

use idempotent::Timestamp;
use idempotent::delay::{DelayDb, DelayTable, ScheduledTask};
use idempotent::delay_queue::{DelayMessage, DelayQueue, DelaySource};
use idempotent::mq::{DeadLetter, Settlement, Source};
use idempotent::sqlx::{MySqlPool, PgPool, Pool};
use idempotent_harness::servers::{MariaDbServer, PostgresServer, RedisServer};
use serde_json::json;

use crate::dead::site::next;
use crate::support::{run_without_store as run, sqlite_pool};

const HOUR: Duration = Duration::from_secs(3_600);

/// Dead-letters one delivery, and leaves another one unsettled.
async fn take_two<S: Source>(source: &mut S) -> (idempotent::mq::Delivery, S::Tag) {
    let (delivery, tag) = next(source).await;
    let letter = Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)));
    source.settler().settle(&delivery, &tag, &letter).await.unwrap();
    next(source).await
}

/// Checks one dead message, one in flight, one ready, and two that wait.
fn is_counted(arguments: &[&str]) {
    let status = |more: &[&str]| run(&[&["delay", "status"], arguments, more].concat());
    let counted = &status(&[]).lines()[0];
    let exact = |number: u64| json!({ "at_least": number, "exact": true });
    let numbers = ["ready", "waiting", "in_flight", "dead"].map(|name| counted[name].clone());
    assert_eq!(numbers, [1, 2, 1, 1].map(exact), "{counted}");
    assert!(counted["oldest_ready_ms"].is_u64(), "{counted}");
    let table = status(&["-o", "table"]).out;
    assert!(table.contains("in flight      1\n") && table.contains("oldest ready   "), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_messages_of_a_delay_queue_are_counted() {
    let server = RedisServer::start();
    let queue = DelayQueue::builder(server.url(), "orders").namespace("shop").slots(4).visibility(HOUR);
    let queue = queue.connect().await.unwrap();
    let mut source = DelaySource::new(&queue);
    for delay in [Duration::ZERO, Duration::ZERO, HOUR, HOUR] {
        queue.send(&DelayMessage::after(delay, "")).await.unwrap();
    }
    let _held = take_two(&mut source).await;
    queue.send(&DelayMessage::after(Duration::ZERO, "")).await.unwrap();
    while queue.counts().await.unwrap().ready == 0 {}
    let url = server.url().replacen("redis://", "redis+delay://", 1);
    is_counted(&["--queue", &url, "--name", "orders", "--namespace", "shop", "--slots", "4"]);
    server.kill();
    run(&["delay", "status", "--queue", &url, "--name", "orders"]).fails(7, "orders on redis+delay://");
}

async fn is_counted_in_a_table<Db: DelayDb>(pool: Pool<Db>, url: &str) {
    let options = ["--queue", url, "--name", "limits"];
    run(&[&["delay", "status"], &options[..]].concat()).fails(5, "limits");
    let table = DelayTable::builder(pool).table("limits").create(true).visibility(HOUR).open().await.unwrap();
    let mut source = table.source();
    for (key, delay) in [("a", Duration::ZERO), ("b", Duration::ZERO), ("c", HOUR), ("d", HOUR)] {
        table.put(&ScheduledTask::after(key, delay, "")).await.unwrap();
    }
    let _held = take_two(&mut source).await;
    drop(source);
    table.put(&ScheduledTask::after("e", Duration::ZERO, "")).await.unwrap();
    while table.counts().await.unwrap().ready == 0 {}
    is_counted(&options);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_messages_of_a_delay_table_in_sqlite_are_counted() {
    let (_folder, url, pool) = sqlite_pool().await;
    is_counted_in_a_table(pool, &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_messages_of_a_delay_table_in_postgres_are_counted() {
    let server = PostgresServer::start();
    let url = server.url();
    is_counted_in_a_table(PgPool::connect(&url).await.unwrap(), &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_messages_of_a_delay_table_in_mariadb_are_counted() {
    let server = MariaDbServer::start();
    let url = server.url();
    is_counted_in_a_table(MySqlPool::connect(&url).await.unwrap(), &url).await;
}

#[test]
fn a_place_without_delayed_messages_is_refused_with_the_remedy() {
    let status = |url: &str| run(&["delay", "status", "--name", "orders", "--queue", url]);
    status("redis://u:s3cret@localhost").fails(2, "use redis+delay://HOST for a delay queue");
    status("amqp://u:s3cret@localhost").fails(2, "postgres://HOST/DATABASE");
    run(&["delay", "status", "--name", "orders"]).fails(2, "set IDEMPOTENT_QUEUE");
    let help = run(&["delay", "status", "--help"]);
    assert!(help.code == 0 && help.out.contains("  idempotent delay status --queue "), "{help:?}");
}

//! The outbox, on PostgreSQL and RabbitMQ.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent::mq::OutboundMessage;
use idempotent::outbox::{Outbox, Relay};
use idempotent::rabbitmq::RabbitPublisher;
use idempotent_harness::servers::{PostgresServer, RabbitServer};
use sqlx::postgres::{PgPool, PgPoolOptions};

use crate::report::{Goal, Report};
use crate::{by_hand, rates};

const STORE: &str = "outbox";
const QUEUE: &str = "orders";
/// The batch size of the relay and of the floor.
const BATCH: u32 = 100;

async fn pool(server: &PostgresServer) -> PgPool {
    PgPoolOptions::new().max_connections(4).connect(&server.url()).await.unwrap()
}

/// Counts the statements that a message adds to a transaction, in the server's log.
pub async fn enqueue(report: &Report) {
    let case = "statements that a message adds to a transaction";
    if !report.wants(STORE, case) {
        return;
    }
    let server = PostgresServer::start();
    let pool = pool(&server).await;
    let outbox = Outbox::builder(pool.clone()).create(true).open().await.unwrap();
    server.psql("postgres", "CREATE TABLE account (balance bigint)");
    server.psql("postgres", "ALTER SYSTEM SET log_statement = 'all'");
    server.psql("postgres", "SELECT pg_reload_conf()");
    // The statements are planned and the setting is read before the count.
    let mut connection = pool.acquire().await.unwrap();
    let mut transact = async |number: u64, sends: bool| {
        sqlx::query("BEGIN").execute(&mut *connection).await.unwrap();
        sqlx::query("UPDATE account SET balance = balance - 5").execute(&mut *connection).await.unwrap();
        if sends {
            let message = OutboundMessage::new(QUEUE, format!("enqueued-{number}"), by_hand::body());
            outbox.enqueue(&mut connection, &message).await.unwrap();
        }
        sqlx::query("COMMIT").execute(&mut *connection).await.unwrap();
    };
    let logged = || {
        let log = server.log();
        log.lines().filter(|line| line.contains("LOG:  execute ") || line.contains("LOG:  statement: ")).count()
    };
    const TIMES: u64 = 50;
    for number in 0..2 {
        transact(number, true).await;
    }
    let mut counts = [0, 0];
    for sends in [false, true] {
        let before = logged();
        for number in 0..TIMES {
            transact(100 + number, sends).await;
        }
        counts[usize::from(sends)] = logged() - before;
    }
    assert_eq!(counts[0] as u64, 3 * TIMES, "BEGIN, UPDATE, COMMIT: else the log is not what is taken for it");
    let added = (counts[1] as f64 - counts[0] as f64) / TIMES as f64;
    report.value((STORE, case, None), "statements", added, Goal::AtMost(1.0));
}

/// Compares the relay with publishing the same messages, in batches of the same size, with confirms.
pub async fn relay(report: &Report) {
    let case = "relay to RabbitMQ";
    if !report.wants(STORE, case) {
        return;
    }
    let (rounds, messages) = if report.is_tried() { (1, 300) } else { (9, 10_000_u64) };
    let (server, rabbit) = (PostgresServer::start(), RabbitServer::start());
    let pool = pool(&server).await;
    let outbox = Outbox::builder(pool.clone()).create(true).open().await.unwrap();
    let (_connection, channel) = by_hand::channel(&rabbit.url(), QUEUE).await;
    let publisher = Arc::new(RabbitPublisher::builder(rabbit.url()).build().unwrap());
    let relay = Relay::new(&outbox, publisher).batch(BATCH);
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                write(&pool, &outbox, round, messages).await;
                ours.push(sent(&relay, messages).await);
            } else {
                floor.push(by_hand::publish(&channel, QUEUE, messages, BATCH.into()).await);
            }
            rabbit.ctl(&["purge_queue", QUEUE]);
        }
    }
    report.pair((STORE, case, Some(BATCH as usize)), "messages/s", rates(messages, &ours, &floor), Goal::AtLeast(0.85));
}

async fn write(pool: &PgPool, outbox: &Outbox<sqlx::Postgres>, round: usize, messages: u64) {
    let all: Vec<_> =
        (0..messages).map(|number| OutboundMessage::new(QUEUE, format!("{round}-{number}"), by_hand::body())).collect();
    let mut tx = pool.begin().await.unwrap();
    outbox.enqueue_all(&mut tx, &all).await.unwrap();
    tx.commit().await.unwrap();
}

/// Runs the relay like a user until all messages are sent and recorded.
async fn sent(relay: &Relay<sqlx::Postgres>, messages: u64) -> Duration {
    let (began, before) = (Instant::now(), relay.counts().sent);
    let all = async {
        while relay.counts().sent < before + messages {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert_eq!(relay.run(all).await.failed, 0);
    began.elapsed()
}

//! The relay of an outbox with more and more messages that wait to be sent, on PostgreSQL.
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use idempotent::mq::{OutboundMessage, Publish, PublishError, Published};
use idempotent::outbox::{Outbox, Relay};
use idempotent_harness::servers::PostgresServer;
use sqlx::Postgres;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::sync::watch;

use crate::report::Report;
use crate::sizes::{FLAT, at_size, compare, grouped};

const STORE: &str = "outbox";
const CASE: &str = "relay";

/// A publisher that confirms each message at once, so that only the relay and its statements are measured.
#[derive(Debug)]
struct Confirming(watch::Sender<u64>);

#[async_trait]
impl Publish for Confirming {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        self.0.send_modify(|confirmed| *confirmed += messages.len() as u64);
        messages.iter().map(|_| Ok(Published::default())).collect()
    }
}

pub async fn backlog(report: &Report) {
    if !report.wants(STORE, CASE) {
        return;
    }
    let (numbers, messages) =
        if report.is_tried() { (vec![500, 1_000], 200) } else { (vec![1_000, 10_000, 100_000, 1_000_000], 500) };
    let server = PostgresServer::start();
    let pool = PgPoolOptions::new().max_connections(4).connect(&server.url()).await.unwrap();
    let mut sizes = Vec::new();
    for waiting in &numbers {
        let outbox =
            Outbox::builder(pool.clone()).table(format!("outbox_{waiting}")).create(true).open().await.unwrap();
        write(&pool, &outbox, "first", *waiting).await;
        server.psql("postgres", &format!("VACUUM ANALYZE outbox_{waiting}"));
        let (pool, outbox) = (pool.clone(), Arc::new(outbox));
        sizes.push(at_size(move |round| {
            let (pool, outbox) = (pool.clone(), outbox.clone());
            async move {
                let (time, sent) = send(&outbox, messages).await;
                // The backlog has its old size again.
                write(&pool, &outbox, &format!("{round}"), sent).await;
                time * u32::try_from(messages).unwrap() / u32::try_from(sent).unwrap()
            }
        }));
    }
    let pairs = compare(report, 11, messages, &sizes).await;
    for (waiting, pair) in numbers.iter().zip(pairs).skip(1) {
        let line = format!("{CASE}, {} waiting, to {}", grouped(*waiting), grouped(numbers[0]));
        report.pair((STORE, &line, None), "ns", pair, FLAT);
    }
}

async fn write(pool: &PgPool, outbox: &Outbox<Postgres>, name: &str, messages: u64) {
    for first in (0..messages).step_by(5_000) {
        let message = |number| OutboundMessage::new("orders", format!("{name}-{number}"), "{\"order\": 17}");
        let some: Vec<_> = (first..(first + 5_000).min(messages)).map(message).collect();
        let mut tx = pool.begin().await.unwrap();
        outbox.enqueue_all(&mut tx, &some).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// Runs the relay like a user until at least `messages` messages are sent. Returns the time and the number of sent messages.
async fn send(outbox: &Outbox<Postgres>, messages: u64) -> (Duration, u64) {
    let (publisher, mut confirmed) = watch::channel(0);
    let relay = Relay::new(outbox, Arc::new(Confirming(publisher)));
    let began = Instant::now();
    // The relay records the last batch before it ends.
    let enough = async { drop(confirmed.wait_for(|confirmed| *confirmed >= messages).await) };
    let counts = relay.run(enough).await;
    assert_eq!(counts.failed, 0);
    (began.elapsed(), relay.counts().sent)
}

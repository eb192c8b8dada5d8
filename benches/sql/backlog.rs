//! The throughput of four workers that share one backlog in MariaDB or MySQL, to that of one worker.
//!
//! A worker works 5 ms on each task of the delay table. A relay sends several batches at the same time, each to a broker that
//! answers after 100 ms, so that the broker is the limit of one relay.
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use idempotent::delay::{DelayTable, ScheduledTask};
use idempotent::mq::{OutboundMessage, Publish, PublishError, Published, Received, Settlement, Source};
use idempotent::outbox::{Outbox, Relay};
use idempotent_harness::servers::MariaDbServer;
use sqlx::MySql;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::report::{Goal, Pair, Report};

const STORE: &str = "mariadb";
pub const TASKS: &str = "tasks of a delay table, four workers to one";
pub const MESSAGES: &str = "messages of an outbox, four relays to one";
const WORKERS: usize = 4;
const WORK: Duration = Duration::from_millis(5);
const ANSWER: Duration = Duration::from_millis(100);
/// The number of tasks or messages that a worker takes at a time.
const BATCH: u32 = 16;
const ROUNDS: usize = 5;

/// The number of tasks or messages that the workers of a round have done, and the number of all.
#[derive(Debug)]
struct Progress {
    done: watch::Sender<u64>,
    all: u64,
}

impl Progress {
    fn add(&self, number: usize) {
        self.done.send_modify(|done| *done += number as u64);
    }

    async fn finished(&self) {
        self.done.subscribe().wait_for(|done| *done >= self.all).await.unwrap();
    }
}

pub async fn all(report: &Report, server: &MariaDbServer) {
    let all = if report.is_tried() { 64 } else { 2_000 };
    if report.wants(STORE, TASKS) {
        DelayTable::builder(pool(server).await).create(true).open().await.unwrap();
        four_to_one(report, TASKS, "tasks/s", server, all, schedule, work).await;
    }
    if report.wants(STORE, MESSAGES) {
        Outbox::builder(pool(server).await).create(true).open().await.unwrap();
        four_to_one(report, MESSAGES, "messages/s", server, all * 8, enqueue, relay).await;
    }
}

async fn pool(server: &MariaDbServer) -> MySqlPool {
    MySqlPoolOptions::new().max_connections(2).connect(&server.url()).await.unwrap()
}

async fn four_to_one<W: Future<Output = ()> + Send + 'static>(
    report: &Report,
    case: &'static str,
    unit: &'static str,
    server: &MariaDbServer,
    all: u64,
    fill: impl AsyncFn(&MySqlPool, u64),
    worker: impl Fn(MySqlPool, Arc<Progress>) -> W,
) {
    let mut pairs = Vec::new();
    for round in 0..if report.is_tried() { 1 } else { ROUNDS } {
        let mut rates = [0.0; 2];
        // The order alternates.
        for turn in [round % 2, 1 - round % 2] {
            let workers = [1, WORKERS][turn];
            fill(&pool(server).await, all).await;
            let progress = Arc::new(Progress { done: watch::Sender::new(0), all });
            let mut pools = Vec::new();
            for _ in 0..workers {
                pools.push(pool(server).await);
            }
            let start = Instant::now();
            let mut tasks: JoinSet<_> = pools.into_iter().map(|pool| worker(pool, progress.clone())).collect();
            tokio::select! {
                () = progress.finished() => {}
                Some(Err(panicked)) = tasks.join_next() => panic!("a worker ended: {panicked}"),
            }
            rates[turn] = all as f64 / start.elapsed().as_secs_f64();
            tasks.join_all().await;
            assert_eq!(*progress.done.borrow(), all, "one was taken twice");
        }
        pairs.push((rates[1], rates[0]));
    }
    report.pair((STORE, case, Some(WORKERS)), unit, Pair::medians(&pairs), Goal::AtLeast(2.0));
}

async fn schedule(pool: &MySqlPool, all: u64) {
    let table = DelayTable::open(pool.clone()).await.unwrap();
    for number in 0..all {
        table.put(&ScheduledTask::after(number.to_string(), Duration::ZERO, "1")).await.unwrap();
    }
}

async fn work(pool: MySqlPool, progress: Arc<Progress>) {
    let mut source = DelayTable::open(pool).await.unwrap().source();
    let settler = source.settler();
    loop {
        let received = tokio::select! {
            received = source.receive(BATCH as usize) => received.unwrap(),
            () = progress.finished() => return,
        };
        let Received::Deliveries(taken) = received else { panic!("revoked") };
        for (delivery, tag) in &taken {
            tokio::time::sleep(WORK).await;
            settler.settle(delivery, tag, &Settlement::Ack).await.unwrap();
            progress.add(1);
        }
    }
}

async fn enqueue(pool: &MySqlPool, all: u64) {
    let outbox = Outbox::builder(pool.clone()).open().await.unwrap();
    let messages: Vec<_> =
        (0..all).map(|number| OutboundMessage::new("orders", number.to_string(), number.to_string())).collect();
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("DELETE FROM idempotent_outbox").execute(&mut *tx).await.unwrap();
    outbox.enqueue_all(&mut tx, &messages).await.unwrap();
    tx.commit().await.unwrap();
}

async fn relay(pool: MySqlPool, progress: Arc<Progress>) {
    let outbox: Outbox<MySql> = Outbox::builder(pool).open().await.unwrap();
    let relay = Relay::new(&outbox, Arc::new(Slow(progress.clone()))).batch(BATCH).poll(WORK);
    relay.run(progress.finished()).await;
}

/// A simulated broker, which confirms each batch after [`ANSWER`].
#[derive(Debug)]
struct Slow(Arc<Progress>);

#[async_trait]
impl Publish for Slow {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        tokio::time::sleep(ANSWER).await;
        self.0.add(messages.len());
        messages.iter().map(|_| Ok(Published::somewhere())).collect()
    }
}

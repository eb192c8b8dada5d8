//! The laws of adapters.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{DeadLetter, DeadLetters, Scheduled, StoredLetter};
use idempotent_sqlx::{DelayTable, DelayTableDeadLetters, DelayTableSource, ScheduledTask};
use idempotent_testkit::broker::{Broker, Limits, Message, Outage};
use sqlx::{AssertSqlSafe, Pool};

use super::backend::{self, Db, Lines};

/// A visibility timeout that is long enough for a busy machine, because the test does not extend deliveries.
const VISIBILITY: Duration = Duration::from_secs(3);

struct Table {
    producer: DelayTable<Db>,
    pool: Pool<Db>,
    table: String,
    lines: Lines,
    _kept: Box<dyn std::any::Any + Send + Sync>,
}

impl Table {
    async fn new() -> Self {
        let (pool, table, kept) = backend::fixture("delay").await;
        let lines = Lines::new(&pool).await;
        let producer = open(&pool, &table).await;
        Self { producer, pool, table, lines, _kept: Box::new(kept) }
    }
}

async fn open(pool: &Pool<Db>, table: &str) -> DelayTable<Db> {
    let builder = DelayTable::builder(pool.clone()).table(table).create(true).visibility(VISIBILITY);
    // What comes from other processes is looked for soon.
    builder.poll(Duration::from_millis(100)).open().await.unwrap()
}

#[async_trait]
impl Broker for Table {
    type Source = DelayTableSource<Db>;

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        (limits.held_for, limits.stays_held) = (Some(VISIBILITY), true);
        // Two clocks that tick apart: ours measures, the database's decides.
        limits.early = Duration::from_millis(2);
        limits
    }

    async fn source(&self) -> DelayTableSource<Db> {
        open(&self.lines.pool().await, &self.table).await.source()
    }

    async fn publish(&self, message: Message) {
        let mut work = ScheduledTask::after(message.id, Duration::ZERO, message.body);
        for (name, value) in message.headers.iter() {
            work = work.header(name, value);
        }
        if self.producer.put(&work).await.unwrap() == Scheduled::New {
            return;
        }
        // It keeps a key once: two copies are there where the first is parted from its key.
        let text = format!("UPDATE {} SET live=NULL", self.table);
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&self.pool).await.unwrap();
        assert_eq!(self.producer.put(&work).await.unwrap(), Scheduled::New);
    }

    async fn publish_unreadable(&self) {
        self.publish(Message::new("unreadable", "body")).await;
        let text = format!("UPDATE {} SET headers={}", self.table, backend::HEX.replace("DIGITS", "ffffffff00"));
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&self.pool).await.unwrap();
    }

    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)> {
        let mut letters = DelayTableDeadLetters::new(&self.producer);
        let mut all = Vec::new();
        while let Some(StoredLetter { delivery, letter, .. }) = letters.next().await.unwrap() {
            let mut message = Message::new(delivery.id.unwrap(), delivery.body);
            message.headers = delivery.headers;
            all.push((message, letter.unwrap()));
        }
        all
    }

    fn letters(&self) -> Box<dyn DeadLetters> {
        Box::new(DelayTableDeadLetters::new(&self.producer))
    }

    async fn is_empty(&self) -> bool {
        let counts = self.producer.counts().await.unwrap();
        counts.ready + counts.waiting + counts.in_flight == 0
    }

    async fn cut(&self) {
        self.lines.cut();
    }

    async fn begin_outage(&self, outage: Outage) {
        self.lines.begin_outage(outage == Outage::Silent);
    }

    async fn end_outage(&self) {
        self.lines.end_outage();
    }
}

backend::hold!(Table::new());

//! An outbox with a relay, a broker and a clock.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idempotent_core::{Clock, Timer, Timestamp};
use idempotent_mq::{Delivery, DeliveryResult, LoggedDelivery, MessageLog, OutboundMessage, Position};
use idempotent_sqlx::{Outbox, OutboxRecord, OutboxStatus, Relay, RelayRound, ResendPolicy};
use idempotent_testkit::VirtualClock;
use sqlx::{AssertSqlSafe, Pool, Transaction};

use super::backend::{self, Db};
use crate::outbox::broker::{Bell, Broker};
use crate::outbox::mutant;
use crate::support::stopped_clock;

pub(crate) struct World {
    pub(crate) pool: Pool<Db>,
    pub(crate) table: String,
    pub(crate) outbox: Outbox<Db>,
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) broker: Arc<Broker>,
    pub(crate) bell: Arc<Bell>,
    statements: Arc<Mutex<BTreeMap<&'static str, u32>>>,
    _kept: Box<dyn std::any::Any>,
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// First again after 10 s and 5 s of backlog, thrice at most.
pub(crate) fn resends() -> ResendPolicy {
    ResendPolicy::new().max_sends(3).backoff(10 * SECOND, 40 * SECOND).backlog(5 * SECOND).log_age(100 * SECOND)
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_, text| text).await
    }

    /// Creates an outbox whose statements `edit` changes, as if another program acted between two statements.
    pub(crate) async fn with(edit: impl Fn(&'static str, String) -> String + Send + Sync + 'static) -> Self {
        let (pool, table, kept) = backend::fixture("outbox").await;
        let clock = stopped_clock();
        let statements = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let counted = statements.clone();
        let builder = Outbox::builder(pool.clone()).table(&table).create(true).clock(clock.clone());
        let builder = builder.__edit(move |name, text| {
            *counted.lock().unwrap().entry(name).or_default() += 1;
            edit(name, mutant::edited(name, text))
        });
        let outbox = builder.open().await.unwrap();
        let (broker, bell) = (Arc::new(Broker::new()), Arc::new(Bell::default()));
        Self { pool, table, outbox, clock, broker, bell, statements, _kept: Box::new(kept) }
    }

    pub(crate) fn relay(&self) -> Relay<Db> {
        Relay::new(&self.outbox, self.broker.clone()).resends(resends()).alerts(self.bell.clone()).lease(LEASE)
    }

    pub(crate) async fn round(&self) -> RelayRound {
        self.relay().round().await.unwrap()
    }

    /// Voids a message, as an operator.
    pub(crate) async fn void(&self, id: &str) {
        let mut tx = self.begin().await;
        self.outbox.void(&mut tx, id, "anna", "paid in cash").await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Resends a message, as an operator.
    pub(crate) async fn resend(&self, id: &str) {
        let mut tx = self.begin().await;
        self.outbox.resend(&mut tx, id, "anna", "the queue is gone").await.unwrap();
        tx.commit().await.unwrap();
    }

    pub(crate) async fn begin(&self) -> Transaction<'static, Db> {
        self.pool.begin_with(backend::BEGIN).await.unwrap()
    }

    /// Writes messages, and commits.
    pub(crate) async fn put(&self, messages: &[OutboundMessage]) {
        let mut tx = self.begin().await;
        self.outbox.enqueue_all(&mut tx, messages).await.unwrap();
        tx.commit().await.unwrap();
    }

    pub(crate) async fn stub(&self, id: &str) -> OutboxRecord {
        self.outbox.inspect(id).await.unwrap().expect("it is there").0
    }

    pub(crate) async fn status(&self, id: &str) -> OutboxStatus {
        self.stub(id).await.status
    }

    /// Returns a message as the relay sends it.
    pub(crate) async fn stored(&self, id: &str) -> OutboundMessage {
        self.outbox.inspect(id).await.unwrap().expect("it is there").1.unwrap()
    }

    /// Returns the receipt of a message of this id at place 5 of its queue, with the outbox's header if the outbox has it.
    pub(crate) async fn receipt(&self, id: &str, number: u128) -> LoggedDelivery {
        let mut delivery = Delivery::new(Position::of("orders").partition(0).offset(5_u64), Vec::new()).id(id);
        if let Some((_, Some(stored))) = self.outbox.inspect(id).await.unwrap() {
            delivery.headers = stored.headers;
        }
        LoggedDelivery::of(&delivery, number).unwrap()
    }

    /// Returns a receipt for each of these, numbered from 0.
    pub(crate) async fn receipts(&self, ids: &[&str]) -> Vec<LoggedDelivery> {
        join_all((0..).zip(ids).map(|(number, id)| self.receipt(id, number))).await
    }

    /// Records the result of a delivery of a message.
    pub(crate) async fn conclude(&self, id: &str, number: u128, how: DeliveryResult) {
        self.outbox.concluded(&self.receipt(id, number).await, how).await.unwrap();
    }

    /// Returns the seconds until the message is due.
    pub(crate) async fn due_in(&self, id: &str) -> Option<u64> {
        self.stub(id).await.due_at.map(|due| (due - self.clock.wall()).as_secs())
    }

    /// Executes SQL text in which `outbox` is replaced by the name of the table.
    pub(crate) async fn sql(&self, text: &str) {
        let text = text.replace("outbox", &self.table);
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&self.pool).await.unwrap();
    }

    /// Returns the number of executions of each statement since the last call, in alphabetical order.
    pub(crate) fn statements(&self) -> Vec<(&'static str, u32)> {
        std::mem::take(&mut *self.statements.lock().unwrap()).into_iter().collect()
    }

    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.jump(Duration::from_secs(seconds));
    }
}

/// A clock on which each rest ends at once; keeps the longest of them.
#[derive(Debug, Default)]
pub(crate) struct Restless(pub(crate) VirtualClock, pub(crate) Mutex<Duration>);

impl Clock for Restless {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    fn sleep_until(&self, end: Instant) -> Timer {
        let rest = end.saturating_duration_since(self.now());
        let mut longest = self.1.lock().unwrap();
        *longest = rest.max(*longest);
        self.0.jump(rest);
        Box::pin(tokio::task::yield_now())
    }
}

pub(crate) fn message(id: &str) -> OutboundMessage {
    OutboundMessage::new("orders", id, format!("body of {id}").into_bytes())
}

pub(crate) fn of(id: &str, aggregate: &str) -> OutboundMessage {
    message(id).aggregate(aggregate)
}

impl World {
    pub(crate) fn micros(&self) -> u64 {
        self.clock.wall().0
    }

    /// A text in quotes, as bytes.
    pub(crate) fn bytes(&self, quoted: &str) -> String {
        let digits: String = quoted.trim_matches('\'').bytes().map(|byte| format!("{byte:02x}")).collect();
        self.hex(&digits)
    }

    pub(crate) fn hex(&self, digits: &str) -> String {
        backend::HEX.replace("DIGITS", digits)
    }

    /// A row of the message log; kind 0 is how far a queue was seen.
    pub(crate) async fn log(&self, kind: u8, id: &str, place: Option<&str>, at: u64) {
        let (run, place) = (self.hex(""), place.unwrap_or("NULL"));
        self.sql(&format!(
            "INSERT INTO outbox_log (kind,id,run,place,logged_at) VALUES ({kind},{id},{run},{place},{at})"
        ))
        .await;
    }

    /// Returns the number of rows of `outbox` or another table with this condition.
    pub(crate) async fn rows(&self, of: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {}", of.replace("outbox", &self.table));
        sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(&self.pool).await.unwrap()
    }

    /// Returns the number of messages that are recorded as running.
    pub(crate) async fn notes(&self) -> i64 {
        self.rows("outbox_log WHERE kind = 1").await
    }
}

//! A table with a clock.
use std::sync::Arc;
use std::time::Duration;

use idempotent_mq::{Delivery, Received, Settle, Settlement, Source};
use idempotent_sqlx::{DelayTable, DelayTableBuilder, DelayTableCounts, DelayTableSource, DelayTableTag};
use sqlx::{AssertSqlSafe, Pool, Transaction};

use super::backend::{self, Db};
use crate::delay::clock::Moved;

pub(super) type Held = (Delivery, DelayTableTag);

pub(super) struct World {
    pub(super) pool: Pool<Db>,
    pub(super) table: String,
    pub(super) work: DelayTable<Db>,
    pub(super) clock: Arc<Moved>,
    _kept: Box<dyn std::any::Any>,
}

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MICRO: Duration = Duration::from_micros(1);
pub(super) const VISIBILITY: Duration = Duration::from_secs(60);
/// The time limit for an event that must occur.
pub(super) const MINUTE: Duration = Duration::from_secs(60);

impl World {
    /// Creates a table on a clock that only the test moves.
    pub(super) async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    pub(super) async fn with(set: impl FnOnce(DelayTableBuilder<Db>) -> DelayTableBuilder<Db>) -> Self {
        let clock = Moved::new();
        let clocked = clock.clone();
        Self::build(clock, |builder| set(builder.clock(clocked))).await
    }

    /// Creates a table on the database's clock.
    pub(super) async fn real(set: impl FnOnce(DelayTableBuilder<Db>) -> DelayTableBuilder<Db>) -> Self {
        Self::build(Moved::new(), set).await
    }

    async fn build(clock: Arc<Moved>, set: impl FnOnce(DelayTableBuilder<Db>) -> DelayTableBuilder<Db>) -> Self {
        let (pool, table, kept) = backend::fixture("delay").await;
        let builder = DelayTable::builder(pool.clone()).table(&table).create(true).visibility(VISIBILITY);
        let work = set(builder).open().await.unwrap();
        Self { pool, table, work, clock, _kept: Box::new(kept) }
    }

    pub(super) async fn begin(&self) -> Transaction<'static, Db> {
        self.pool.begin_with(backend::BEGIN).await.unwrap()
    }

    pub(super) async fn counts(&self) -> DelayTableCounts {
        self.work.counts().await.unwrap()
    }

    /// Executes SQL text in which `delay` is replaced by the name of the table.
    pub(super) async fn sql(&self, text: &str) {
        let text = text.replace("delay", &self.table);
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&self.pool).await.unwrap();
    }
}

/// A source whose methods the test calls directly.
pub(super) struct Hand {
    pub(super) source: DelayTableSource<Db>,
    pub(super) settler: Arc<dyn Settle<DelayTableTag>>,
}

impl Hand {
    pub(super) fn of(world: &World) -> Self {
        Self::on(world.work.source())
    }

    pub(super) fn on(source: DelayTableSource<Db>) -> Self {
        let settler = source.settler();
        Self { source, settler }
    }

    /// Returns the next deliveries.
    pub(super) async fn take(&mut self, room: usize) -> Vec<Held> {
        let received = tokio::time::timeout(MINUTE, self.source.receive(room)).await.expect("nothing came").unwrap();
        let Received::Deliveries(taken) = received else { panic!("{received:?}") };
        taken
    }

    /// Checks that no delivery arrives.
    pub(super) async fn nothing(&mut self) {
        let waited = tokio::time::timeout(Duration::from_millis(150), self.source.receive(10)).await;
        assert!(waited.is_err(), "something came: {waited:?}");
    }

    pub(super) async fn settle(&self, held: &Held, how: Settlement) {
        self.settler.settle(&held.0, &held.1, &how).await.unwrap();
    }
}

pub(super) fn id(held: &Held) -> &str {
    held.0.id.as_deref().unwrap()
}

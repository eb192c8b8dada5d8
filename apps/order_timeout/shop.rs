//! Orders, their payments and their time limits, in one SQLite file.
use std::time::Duration;

use idempotent::delay::{DelayTable, DelayTableBuilder, ScheduledTask};
use idempotent::{Rejection, idempotent};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Sqlite, SqlitePool, Transaction};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error(transparent)]
    Orders(#[from] sqlx::Error),
    #[error(transparent)]
    Limits(#[from] idempotent::mq::DelayError),
    #[error(transparent)]
    Outbox(#[from] idempotent::outbox::OutboxError),
    #[error("the body of a time limit is the number of an order, and this one is none")]
    NoOrder,
}

pub(crate) struct Shop {
    pub(crate) orders: SqlitePool,
    pub(crate) limits: DelayTable<Sqlite>,
}

const TABLES: &str = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, status TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL, what TEXT NOT NULL) STRICT";

impl Shop {
    /// `set` is for what a test wants to be another way.
    pub(crate) async fn open(
        file: &str,
        set: impl FnOnce(DelayTableBuilder<Sqlite>) -> DelayTableBuilder<Sqlite>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
        let options = options.journal_mode(SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(30));
        let orders = SqlitePoolOptions::new().max_connections(8).connect_with(options).await?;
        sqlx::raw_sql(TABLES).execute(&orders).await?;
        let limits = DelayTable::builder(orders.clone()).table("order_limits").create(true);
        Ok(Self { limits: set(limits).open().await?, orders })
    }

    /// Places an order. The order and its time limit are one commit, so no order lacks a limit.
    pub(crate) async fn place(&self, order: &str, limit: Duration) -> Result<(), Failed> {
        let mut tx = self.orders.begin_with("BEGIN IMMEDIATE").await?;
        Self::insert(&mut tx, order).await?;
        self.limits.put_in(&mut tx, &ScheduledTask::after(order, limit, order)).await?;
        tx.commit().await?;
        self.limits.wake();
        Ok(())
    }

    pub(crate) async fn insert(tx: &mut Transaction<'_, Sqlite>, order: &str) -> Result<(), Failed> {
        let insert = sqlx::query("INSERT INTO orders (id, status) VALUES (?, 'unpaid')");
        insert.bind(order.to_owned()).execute(&mut **tx).await?;
        Ok(())
    }

    /// Pays an order unless it is cancelled. Returns whether this call paid it. The payment deletes the time limit.
    pub(crate) async fn pay(&self, order: &str) -> Result<bool, Failed> {
        self.change(order, "paid", true).await
    }

    /// Changes the status of an unpaid order. Of a payment and a cancellation, the first one succeeds.
    async fn change(&self, order: &str, status: &str, calls_off: bool) -> Result<bool, Failed> {
        let mut tx = self.orders.begin_with("BEGIN IMMEDIATE").await?;
        let update = sqlx::query("UPDATE orders SET status = ? WHERE id = ? AND status = 'unpaid'");
        let changed = update.bind(status.to_owned()).bind(order.to_owned()).execute(&mut *tx).await?;
        if changed.rows_affected() == 0 {
            return Ok(false);
        }
        // The effects that tests count: a payment, and a notification of the customer.
        let effect = sqlx::query("INSERT INTO effects (id, what) VALUES (?, ?)");
        effect.bind(order.to_owned()).bind(status.to_owned()).execute(&mut *tx).await?;
        if calls_off {
            // Too late if it is being delivered, and nothing where RabbitMQ has it: `time_is_over` asks the order in any case.
            self.limits.cancel_in(&mut tx, order).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Returns the number of orders that are neither paid nor cancelled.
    pub(crate) async fn unpaid(&self) -> Result<i64, Failed> {
        let unpaid = sqlx::query_scalar("SELECT COUNT(*) FROM orders WHERE status = 'unpaid'");
        Ok(unpaid.fetch_one(&self.orders).await?)
    }

    pub(crate) async fn status(&self, order: &str) -> Result<String, Failed> {
        let status = sqlx::query_scalar("SELECT status FROM orders WHERE id = ?");
        Ok(status.bind(order.to_owned()).fetch_one(&self.orders).await?)
    }

    /// Returns all effects of an order, repeated ones included.
    pub(crate) async fn effects(&self, order: &str) -> Result<Vec<String>, Failed> {
        let effects = sqlx::query_scalar("SELECT what FROM effects WHERE id = ? ORDER BY what");
        Ok(effects.bind(order.to_owned()).fetch_all(&self.orders).await?)
    }
}

/// Its time is over. It may have been paid in the last moment, while this was on its way: so it is cancelled only if it
/// is still unpaid, by the statement that cancels it. A duplicate does not get here.
#[idempotent(scene = mq, scope = "order_limit", key = order)]
pub(crate) async fn time_is_over(order: &str, shop: &Shop) -> Result<(), Failed> {
    shop.change(order, "cancelled", false).await?;
    Ok(())
}

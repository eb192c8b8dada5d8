//! Orders, their time limits and the notices of their customers, in one SQLite file.
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use idempotent::delay::{DelayTable, ScheduledTask};
use idempotent::mq::OutboundMessage;
use idempotent::outbox::{Outbox, OutboxStatus};
use idempotent::{Clock, Rejection, Timestamp, idempotent};
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
    #[error("the message does not belong to this shop")]
    Unknown,
}

/// A time limit of an order: the customer acts in time, or the shop acts when the time is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Limit {
    /// The status of an order that waits for its customer.
    pub(crate) waits: &'static str,
    /// The status that the customer gives the order.
    pub(crate) in_time: &'static str,
    /// The status that the shop gives the order.
    pub(crate) over: &'static str,
}

/// An order that is not paid in time is cancelled.
pub(crate) const PAYMENT: Limit = Limit { waits: "unpaid", in_time: "paid", over: "cancelled" };
/// The receipt of a shipped order that its customer does not confirm in time is confirmed by the shop.
pub(crate) const RECEIPT: Limit = Limit { waits: "shipped", in_time: "confirmed", over: "auto-confirmed" };
/// The time in which the customer confirms the receipt.
pub(crate) const RECEIPT_TIME: Duration = Duration::from_secs(7 * 86_400);

impl Limit {
    /// Returns the key of an order's limit, which is its body, too: both limits of an order have keys of their own.
    pub(crate) fn key(self, order: &str) -> String {
        format!("{} {order}", self.waits)
    }

    /// Returns the limit and the order of a key.
    pub(crate) fn of_key(key: &[u8]) -> Result<(Self, &str), Failed> {
        let parts = str::from_utf8(key).ok().and_then(|key| key.split_once(' '));
        let limit = |waits| [PAYMENT, RECEIPT].into_iter().find(|limit| limit.waits == waits);
        parts.and_then(|(waits, order)| Some((limit(waits)?, order))).ok_or(Failed::Unknown)
    }
}

/// The queue of the time limits, if RabbitMQ keeps them.
pub(crate) const LIMITS: &str = "order_limits";
/// The queue of the notices.
pub(crate) const NOTICES: &str = "order_notices";

pub(crate) struct Shop {
    pub(crate) orders: SqlitePool,
    pub(crate) limits: DelayTable<Sqlite>,
    pub(crate) outbox: Outbox<Sqlite>,
    /// True if RabbitMQ keeps the time limits, and false if the table does.
    pub(crate) limits_at_broker: bool,
}

const TABLES: &str = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, status TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL, what TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS notices (text TEXT NOT NULL) STRICT";

impl Shop {
    /// Opens the file. `clock` replaces the database's clock in a test.
    pub(crate) async fn open(
        file: &str,
        clock: Option<Arc<dyn Clock>>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
        let options = options.journal_mode(SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(30));
        let orders = SqlitePoolOptions::new().max_connections(8).connect_with(options).await?;
        sqlx::raw_sql(TABLES).execute(&orders).await?;
        let mut limits = DelayTable::builder(orders.clone()).table("order_limits").create(true);
        let mut outbox = Outbox::builder(orders.clone()).create(true);
        if let Some(clock) = clock {
            (limits, outbox) = (limits.clock(clock.clone()), outbox.clock(clock));
        }
        let (limits, outbox) = (limits.open().await?, outbox.open().await?);
        Ok(Self { orders, limits, outbox, limits_at_broker: false })
    }

    /// Places an order. The order and its time limit are one commit, so no order lacks a limit.
    pub(crate) async fn place(&self, order: &str, limit: Duration) -> Result<(), Failed> {
        let mut tx = self.orders.begin_with("BEGIN IMMEDIATE").await?;
        let insert = sqlx::query("INSERT INTO orders (id, status) VALUES (?, ?)");
        insert.bind(order.to_owned()).bind(PAYMENT.waits).execute(&mut *tx).await?;
        self.start(tx, PAYMENT, order, limit).await
    }

    /// Ships a paid order, and starts the time limit of its receipt. Returns whether this call shipped it.
    pub(crate) async fn ship(&self, order: &str, limit: Duration) -> Result<bool, Failed> {
        let Some(tx) = self.change(order, PAYMENT.in_time, RECEIPT.waits).await? else { return Ok(false) };
        self.start(tx, RECEIPT, order, limit).await?;
        Ok(true)
    }

    /// Writes a time limit, in the table or for RabbitMQ, and commits.
    async fn start(
        &self,
        mut tx: Transaction<'_, Sqlite>,
        limit: Limit,
        order: &str,
        time: Duration,
    ) -> Result<(), Failed> {
        let key = limit.key(order);
        if self.limits_at_broker {
            // The broker may be away: the relay sends the limit once it is back, for the same time.
            let at = Timestamp(0) + SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default() + time;
            let message = OutboundMessage::new(LIMITS, key.clone(), key).deliver_at(at);
            self.outbox.enqueue(&mut tx, &message).await?;
        } else {
            self.limits.put_in(&mut tx, &ScheduledTask::after(key.clone(), time, key)).await?;
        }
        tx.commit().await?;
        self.limits.wake();
        self.outbox.wake();
        Ok(())
    }

    /// Pays an order unless it is cancelled. Returns whether this call paid it.
    pub(crate) async fn pay(&self, order: &str) -> Result<bool, Failed> {
        self.act_in_time(PAYMENT, order).await
    }

    /// Confirms the receipt of a shipped order. Returns whether this call confirmed it.
    pub(crate) async fn confirm(&self, order: &str) -> Result<bool, Failed> {
        self.act_in_time(RECEIPT, order).await
    }

    /// Changes an order for its customer, and deletes the time limit, unless the shop was first.
    async fn act_in_time(&self, limit: Limit, order: &str) -> Result<bool, Failed> {
        let Some(mut tx) = self.change(order, limit.waits, limit.in_time).await? else { return Ok(false) };
        // Too late if it is being delivered, and nothing where RabbitMQ has it: `time_is_over` asks the order in any case.
        self.limits.cancel_in(&mut tx, &limit.key(order)).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Changes an order whose time is over, unless the customer was first. The order and the notice are one commit.
    async fn act_for_customer(&self, limit: Limit, order: &str) -> Result<(), Failed> {
        let Some(mut tx) = self.change(order, limit.waits, limit.over).await? else { return Ok(()) };
        let (id, text) = (format!("{} {order}", limit.over), format!("{order} is {}", limit.over));
        self.outbox.enqueue(&mut tx, &OutboundMessage::new(NOTICES, id, text)).await?;
        tx.commit().await?;
        self.outbox.wake();
        Ok(())
    }

    /// Changes the status of an order in a transaction, which the caller commits. Returns `None` if the status is not
    /// `from`. If customer and shop act at the same time, the first one succeeds.
    async fn change(&self, order: &str, from: &str, to: &str) -> Result<Option<Transaction<'_, Sqlite>>, Failed> {
        let mut tx = self.orders.begin_with("BEGIN IMMEDIATE").await?;
        let update = sqlx::query("UPDATE orders SET status = ? WHERE id = ? AND status = ?");
        let update = update.bind(to.to_owned()).bind(order.to_owned()).bind(from.to_owned());
        if update.execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(None);
        }
        // The effects that tests count.
        let effect = sqlx::query("INSERT INTO effects (id, what) VALUES (?, ?)");
        effect.bind(order.to_owned()).bind(to.to_owned()).execute(&mut *tx).await?;
        Ok(Some(tx))
    }

    /// Returns whether no order waits for its customer, and each notice has arrived.
    pub(crate) async fn nothing_left(&self) -> Result<bool, Failed> {
        let waiting = sqlx::query_scalar("SELECT COUNT(*) FROM orders WHERE status IN (?, ?)");
        let waiting: i64 = waiting.bind(PAYMENT.waits).bind(RECEIPT.waits).fetch_one(&self.orders).await?;
        // The limit of a paid order stays in the outbox until RabbitMQ delivers it.
        let messages = self.outbox.list(OutboxStatus::Unconfirmed, 0, 10_000).await?;
        Ok(waiting == 0 && messages.iter().all(|message| message.topic != NOTICES))
    }

    pub(crate) async fn status(&self, order: &str) -> Result<String, Failed> {
        let status = sqlx::query_scalar("SELECT status FROM orders WHERE id = ?");
        Ok(status.bind(order.to_owned()).fetch_one(&self.orders).await?)
    }

    /// Returns all effects of an order in turn, repeated ones included.
    pub(crate) async fn effects(&self, order: &str) -> Result<Vec<String>, Failed> {
        let effects = sqlx::query_scalar("SELECT what FROM effects WHERE id = ? ORDER BY rowid");
        Ok(effects.bind(order.to_owned()).fetch_all(&self.orders).await?)
    }

    /// Returns all notices that the customer of an order has got, repeated ones included.
    pub(crate) async fn notices(&self, order: &str) -> Result<Vec<String>, Failed> {
        let notices = sqlx::query_scalar("SELECT text FROM notices WHERE text LIKE ? ORDER BY rowid");
        Ok(notices.bind(format!("{order} is %")).fetch_all(&self.orders).await?)
    }
}

/// Handles a time limit that is over. The customer may have acted in the last moment, while the limit was on its way.
/// The statement that changes the order therefore checks its status. A duplicate does not run this handler.
#[idempotent(scene = mq, scope = "order_limit", key = (limit.waits, order))]
pub(crate) async fn time_is_over(limit: Limit, order: &str, shop: &Shop) -> Result<(), Failed> {
    shop.act_for_customer(limit, order).await
}

/// Writes a notice for the customer, here a row, which commits together with the key. The relay may send a notice again, with
/// the same id. A service outside of this database would get the id as an idempotency key.
#[idempotent(scene = mq, scope = "order_notice", key = id, transaction = tx)]
pub(crate) async fn tell_customer(id: &str, text: &str, tx: &mut Transaction<'_, Sqlite>) -> Result<(), Failed> {
    sqlx::query("INSERT INTO notices (text) VALUES (?)").bind(text.to_owned()).execute(&mut **tx).await?;
    println!("to the customer: {text}");
    Ok(())
}

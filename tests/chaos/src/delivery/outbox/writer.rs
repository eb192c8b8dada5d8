//! Transactions with messages in them; some are rolled back, and some messages called off.
use std::sync::Arc;
use std::time::Duration;

use idempotent::mq::Outbound;
use idempotent::outbox::{Outbox, OutboxError, OutboxErrorKind};
use sqlx::{PgPool, Postgres};
use tokio::time::sleep;

use super::{AGGREGATES, Body, Note, TOPIC, stores};
use crate::delivery::DeliveryFlaw;
use crate::delivery::hands::{Hands, Point};

/// A transaction comes so often.
const PACE: Duration = Duration::from_millis(40);
/// In percent.
const ROLLED_BACK: u64 = 20;
const POISON: u64 = 3;
const CALLED_OFF: u64 = 4;

struct Writer {
    hands: Arc<Hands>,
    pool: PgPool,
    outbox: Outbox<Postgres>,
}

/// Writes until there is peace.
pub(in crate::delivery) async fn write(hands: &Arc<Hands>) -> anyhow::Result<()> {
    let (pool, outbox, _) = stores(&hands.start.database).await?;
    let writer = Writer { hands: hands.clone(), pool, outbox };
    let mut count = 0;
    while !hands.is_peace() {
        sleep(PACE).await;
        let some = hands.dice.range(1, 3);
        let ids: Vec<String> = (count..count + some).map(|number| format!("m{}-{number}", hands.start.id)).collect();
        count += some;
        // What is not known to be committed is written by nobody else.
        if let Err(error) = writer.transact(&ids).await {
            eprintln!("not written: {error}");
        }
        if hands.dice.percent(CALLED_OFF)
            && let Err(error) = writer.call_off(&ids[0]).await
        {
            eprintln!("not called off: {error}");
        }
    }
    Ok(())
}

impl Writer {
    async fn transact(&self, ids: &[String]) -> Result<(), OutboxError> {
        let dice = &self.hands.dice;
        let aggregate = format!("a{}", dice.below(AGGREGATES));
        let mut tx = self.pool.begin().await?;
        // The row is ours until the commit: of two transactions of one aggregate one is the first.
        let version: i64 = sqlx::query_scalar("SELECT version FROM aggregates WHERE name = $1 FOR UPDATE")
            .bind(&aggregate)
            .fetch_one(&mut *tx)
            .await?;
        for (id, version) in ids.iter().zip(version + 1..) {
            let poison = dice.percent(POISON);
            sqlx::query("INSERT INTO written (id, aggregate, version, poison) VALUES ($1, $2, $3, $4)")
                .bind(id)
                .bind(&aggregate)
                .bind(version)
                .bind(poison)
                .execute(&mut *tx)
                .await?;
            let body = serde_json::to_vec(&Body { poison }).unwrap_or_default();
            let message = Outbound::new(TOPIC, id, body).aggregate(&aggregate);
            if self.hands.start.flaw == Some(DeliveryFlaw::EnqueuesOutside) {
                let mut beside = self.pool.acquire().await?;
                self.outbox.enqueue(&mut beside, &message).await?;
            } else {
                self.outbox.enqueue(&mut tx, &message).await?;
            }
        }
        let step = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        sqlx::query("UPDATE aggregates SET version = version + $2 WHERE name = $1")
            .bind(&aggregate)
            .bind(step)
            .execute(&mut *tx)
            .await?;
        self.hands.may_die(Point::InTransaction);
        if dice.percent(ROLLED_BACK) {
            tx.rollback().await?;
            self.hands.notes.write(&Note::RolledBack { messages: ids.len() as u64 });
            return Ok(());
        }
        Ok(self.hands.may_die_in(Point::AtCommit, tx.commit()).await?)
    }

    async fn call_off(&self, id: &str) -> Result<(), OutboxError> {
        let mut tx = self.pool.begin().await?;
        match self.outbox.void(&mut tx, id, "chaos", "called off").await {
            Ok(()) => {}
            // Not written, or done already.
            Err(error) if error.kind() == OutboxErrorKind::NotFound => return Ok(tx.rollback().await?),
            Err(error) => return Err(error),
        }
        sqlx::query("UPDATE written SET void = true WHERE id = $1").bind(id).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }
}

//! Transactions with messages in them; some are rolled back, and some messages called off.
use std::sync::Arc;
use std::time::Duration;

use idempotent::mq::OutboundMessage;
use idempotent::outbox::{OutboxError, OutboxErrorKind};
use tokio::time::sleep;

use super::broker::OutboxBroker;
use super::home::Home;
use super::statements::{Statements, Written};
use super::{AGGREGATES, Body, NOWHERE, Note};
use crate::delivery::database::on_database;
use crate::delivery::process::{Point, ProcessContext};
use crate::delivery::{DeliveryFlaw, SqlStore};

/// A transaction comes so often.
const PACE: Duration = Duration::from_millis(40);
/// In percent.
const ROLLED_BACK: u64 = 20;
const POISON: u64 = 3;
const CALLED_OFF: u64 = 4;

/// The percentage of transactions with an additional message without a receiver.
const UNWANTED: u64 = 10;

struct Writer<Db: Statements> {
    context: Arc<ProcessContext>,
    home: Home<Db>,
    topic: &'static str,
}

/// Writes until there is peace.
pub(in crate::delivery) async fn write(context: &Arc<ProcessContext>) -> anyhow::Result<()> {
    on_database!(SqlStore::of(&context.start.database), Db => write_to::<Db>(context).await)
}

async fn write_to<Db: Statements>(context: &Arc<ProcessContext>) -> anyhow::Result<()> {
    let home = Home::<Db>::reach(&context.start.database).await;
    let (broker, _) = OutboxBroker::of(&context.start.broker)?;
    let writer = Writer { context: context.clone(), home, topic: broker.topic() };
    let mut count = 0;
    while !context.is_peace() {
        sleep(PACE).await;
        let some = context.dice.range(1, 3);
        let ids: Vec<String> = (count..count + some).map(|number| format!("m{}-{number}", context.start.id)).collect();
        count += some;
        // No other writer repeats a message that is not known to be committed.
        if let Err(error) = writer.transact(&ids).await {
            eprintln!("not written: {error}");
        }
        if context.dice.percent(CALLED_OFF)
            && let Err(error) = writer.call_off(&ids[0]).await
        {
            eprintln!("not called off: {error}");
        }
    }
    Ok(())
}

impl<Db: Statements> Writer<Db> {
    async fn transact(&self, ids: &[String]) -> Result<(), OutboxError> {
        let dice = &self.context.dice;
        let aggregate = format!("a{}", dice.below(AGGREGATES));
        let outside = self.context.start.flaw == Some(DeliveryFlaw::EnqueuesOutside);
        let messages: Vec<_> = ids
            .iter()
            .map(|id| {
                let poison = dice.percent(POISON);
                let body = serde_json::to_vec(&Body { poison }).unwrap_or_default();
                (poison, OutboundMessage::new(self.topic, id, body).aggregate(&aggregate))
            })
            .collect();
        // Before the transaction, because SQLite has a single writer.
        if outside {
            let mut connection = self.home.pool.acquire().await?;
            for (_, message) in &messages {
                self.home.outbox.enqueue(&mut connection, message).await?;
            }
        }
        let mut tx = Db::begin(&self.home.pool).await?;
        let before = Db::advance(&mut tx, &aggregate, i64::try_from(ids.len()).unwrap_or(i64::MAX)).await?;
        for ((id, version), (poison, message)) in ids.iter().zip(before + 1..).zip(messages) {
            let written = Written { aggregate: aggregate.clone(), version, poison, void: false };
            Db::write(&mut tx, id, &written).await?;
            if !outside {
                self.home.outbox.enqueue(&mut tx, &message).await?;
            }
        }
        if dice.percent(UNWANTED) {
            let id = format!("u{}", ids[0]);
            Db::write_unwanted(&mut tx, &id).await?;
            self.home.unwanted.enqueue(&mut tx, &OutboundMessage::new(NOWHERE, id, "{}")).await?;
        }
        self.context.may_die(Point::InTransaction);
        if dice.percent(ROLLED_BACK) {
            tx.rollback().await?;
            self.context.notes.write(&Note::RolledBack { messages: ids.len() as u64 });
            return Ok(());
        }
        Ok(self.context.may_die_in(Point::AtCommit, tx.commit()).await?)
    }

    async fn call_off(&self, id: &str) -> Result<(), OutboxError> {
        let mut tx = Db::begin(&self.home.pool).await?;
        match self.home.outbox.void(&mut tx, id, "chaos", "called off").await {
            Ok(()) => {}
            // Not written, or done already.
            Err(error) if error.kind() == OutboxErrorKind::NotFound => return Ok(tx.rollback().await?),
            Err(error) => return Err(error),
        }
        Db::call_off(&mut tx, id).await?;
        Ok(tx.commit().await?)
    }
}

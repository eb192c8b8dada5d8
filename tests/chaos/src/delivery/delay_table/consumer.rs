//! Consumers with annotated handlers, whose effect and record are one transaction.
use std::sync::Arc;
use std::time::Duration;

use idempotent::mq::{Consumer, HandlerResult, Message, Messages, Schedule};
use idempotent::{Executor, Policy, Scene, idempotent};
use sqlx::{Pool, Transaction};
use tokio::time::sleep;

use super::site::OpenTable;
use super::statements::TaskTables;
use super::{Note, RETRIES};
use crate::delivery::database::on_database;
use crate::delivery::process::{Point, ProcessContext, Stop, now, stopped};
use crate::delivery::wire::Role;
use crate::delivery::{DeliveryFlaw, SqlStore};
use crate::failed::Failed;

const GRACE: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_millis(200);

/// Consumes until the stop signal.
pub(in crate::delivery) async fn consume(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    on_database!(SqlStore::of(&context.start.database), Db => consume_on::<Db>(context, stop).await)
}

async fn consume_on<Db: TaskTables>(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    let OpenTable { pool, table, store } = OpenTable::<Db>::reach(&context.start.database).await?;
    let policy = Policy::new().max_retries(RETRIES).lease(LEASE);
    let policy = policy.retry_delay(Duration::from_millis(10)).retry_delay_max(Duration::from_millis(60));
    let policy = policy.in_flight_delay(Duration::from_millis(50)).in_flight_delay_max(Duration::from_millis(200));
    let executor = Executor::builder(store).policy(Scene::Mq, policy).build()?;
    let source = match context.start.role {
        Role::TableWheel => table.source().on_wheel(WINDOW),
        _ => table.source(),
    };
    let own = context.clone();
    let handling = Messages::raw().annotated(move |message| handle::<Db>(own.clone(), pool.clone(), message));
    let consumer = Consumer::builder(source, "delay-table", &executor)
        .concurrency(4)
        .grace(GRACE)
        .schedule(Schedule::exponential(Duration::from_millis(10), Duration::from_millis(60)))
        // Postponed deliveries, and those of killed consumers, return again and again.
        .max_deliveries(1_000_000)
        .build(handling)?;
    consumer.run(stopped(stop)).await?;
    Ok(())
}

async fn handle<Db: TaskTables>(context: Arc<ProcessContext>, pool: Pool<Db>, message: Message<()>) -> HandlerResult {
    let again = || HandlerResult::Again { after: None, error: "it fails".into() };
    let Some(id) = message.delivery.id.clone() else { return again() };
    let poison = message.delivery.body == b"poison";
    context.notes.write(&Note::Began { id: id.clone(), at: now().0 });
    match context.start.flaw {
        Some(DeliveryFlaw::RunsUnbound) if !poison => {
            let Ok(mut connection) = pool.acquire().await else { return again() };
            let written = Db::effect(&mut connection, &id).await;
            context.may_die(Point::BeforeSettling);
            return if written.is_ok() { HandlerResult::Done } else { again() };
        }
        Some(DeliveryFlaw::AcknowledgesFirst) if !poison => {
            tokio::spawn(async move {
                sleep(Duration::from_millis(100)).await;
                let _ = book::<Db>(&context, &id, poison).await;
            });
            return HandlerResult::Done;
        }
        _ => {}
    }
    let answer = book::<Db>(&context, &id, poison).await;
    context.may_die(Point::BeforeSettling);
    if answer.is_ok() { HandlerResult::Done } else { again() }
}

#[idempotent(key = id, scope = "delay-table", transaction = leased(tx))]
async fn book<Db: TaskTables>(
    context: &ProcessContext,
    id: &str,
    poison: bool,
    tx: &mut Transaction<'_, Db>,
) -> Result<(), Failed> {
    if poison {
        context.notes.write(&Note::Fails { id: id.to_owned() });
    }
    context.may_die(Point::BeforeEffect);
    Db::effect(tx, id).await?;
    context.may_die(Point::InTransaction);
    // A failure rolls the effect back.
    if poison { Err(Failed) } else { Ok(()) }
}

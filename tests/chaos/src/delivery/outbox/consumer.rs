//! Annotated handlers whose effect and record are one transaction, with the outbox as their consumer's log.
use std::sync::Arc;
use std::time::Duration;

use idempotent::delay_queue::DelaySource;
use idempotent::mq::{Consumer, HandlerResult, Message, Messages, Schedule, Source};
use idempotent::{Executor, Policy, Scene, idempotent};
use sqlx::{Pool, Postgres, Sqlite, Transaction};
use tokio::time::sleep;

use super::broker::{self, OutboxBroker};
use super::database::{Database, Home, OutboxStore};
use super::{Body, Note, RETRIES, rabbit};
use crate::delivery::DeliveryFlaw;
use crate::delivery::process::{Point, ProcessContext, Stop, stopped};
use crate::failed::Failed;

const GRACE: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(1);

/// A database whose transactions annotated handlers run in.
trait Books: Database {
    fn book(context: &ProcessContext, id: &str, poison: bool) -> impl Future<Output = Result<(), Failed>> + Send;
}

impl Books for Postgres {
    async fn book(context: &ProcessContext, id: &str, poison: bool) -> Result<(), Failed> {
        on_postgres(context, id, poison).await
    }
}

impl Books for Sqlite {
    async fn book(context: &ProcessContext, id: &str, poison: bool) -> Result<(), Failed> {
        on_sqlite(context, id, poison).await
    }
}

#[idempotent(key = id, scope = "outbox", transaction = leased(tx))]
async fn on_postgres(
    context: &ProcessContext,
    id: &str,
    poison: bool,
    tx: &mut Transaction<'_, Postgres>,
) -> Result<(), Failed> {
    effect(context, id, poison, tx).await
}

#[idempotent(key = id, scope = "outbox", transaction = leased(tx))]
async fn on_sqlite(
    context: &ProcessContext,
    id: &str,
    poison: bool,
    tx: &mut Transaction<'_, Sqlite>,
) -> Result<(), Failed> {
    effect(context, id, poison, tx).await
}

async fn effect<Db: Database>(
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
    // Rolled back.
    if poison { Err(Failed) } else { Ok(()) }
}

/// Consumes until the stop signal.
pub(in crate::delivery) async fn consume(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    let store = OutboxStore::of(&context.start.database);
    let url = &context.start.broker;
    match (OutboxBroker::of(url), store) {
        (OutboxBroker::Delay, OutboxStore::Postgres) => run::<Postgres, _>(delay(url).await, context, stop).await,
        (OutboxBroker::Delay, OutboxStore::Sqlite) => run::<Sqlite, _>(delay(url).await, context, stop).await,
        (OutboxBroker::Rabbitmq, OutboxStore::Postgres) => {
            run::<Postgres, _>(rabbit::source(url)?, context, stop).await
        }
        (OutboxBroker::Rabbitmq, OutboxStore::Sqlite) => run::<Sqlite, _>(rabbit::source(url)?, context, stop).await,
    }
}

async fn delay(url: &str) -> DelaySource {
    DelaySource::new(&broker::queue(url).await)
}

async fn run<Db: Books, S: Source>(source: S, context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    let Home { pool, outbox, store, .. } = Home::<Db>::reach(&context.start.database).await?;
    let policy = Policy::new().max_retries(RETRIES).lease(LEASE);
    let policy = policy.retry_delay(Duration::from_millis(10)).retry_delay_max(Duration::from_millis(60));
    let policy = policy.in_flight_delay(Duration::from_millis(50)).in_flight_delay_max(Duration::from_millis(200));
    let executor = Executor::builder(store).policy(Scene::Mq, policy).build()?;
    let own = context.clone();
    let handling = Messages::<Body>::json().annotated(move |message| handle::<Db>(own.clone(), pool.clone(), message));
    let consumer = Consumer::builder(source, "outbox", &executor)
        .concurrency(4)
        .grace(GRACE)
        .schedule(Schedule::exponential(Duration::from_millis(10), Duration::from_millis(60)))
        // What is put off, and what was killed, comes again and again.
        .max_deliveries(1_000_000)
        .log(Arc::new(outbox))
        .build(handling)?;
    consumer.run(stopped(stop)).await?;
    Ok(())
}

async fn handle<Db: Books>(context: Arc<ProcessContext>, pool: Pool<Db>, message: Message<Body>) -> HandlerResult {
    let again = || HandlerResult::Again { after: None, error: "it fails".into() };
    let delivery = &message.delivery;
    let Some(id) = delivery.id.clone() else { return again() };
    context.notes.write(&Note::Began { id: id.clone(), member: delivery.position.offset.clone().map(Into::into) });
    let poison = message.body.poison;
    match context.start.flaw {
        Some(DeliveryFlaw::Unbound) if !poison => {
            // Neither its key nor its transaction.
            let Ok(mut connection) = pool.acquire().await else { return again() };
            let put = Db::effect(&mut connection, &id).await;
            context.may_die(Point::BeforeSettling);
            return if put.is_ok() { HandlerResult::Done } else { again() };
        }
        Some(DeliveryFlaw::AnswersFirst) if !poison => {
            tokio::spawn(async move {
                sleep(Duration::from_millis(100)).await;
                let _ = Db::book(&context, &id, poison).await;
            });
            return HandlerResult::Done;
        }
        _ => {}
    }
    let answer = Db::book(&context, &id, poison).await;
    context.may_die(Point::BeforeSettling);
    if answer.is_ok() { HandlerResult::Done } else { again() }
}

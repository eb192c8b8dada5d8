//! Annotated handlers whose effect and record are one transaction, with the outbox as their consumer's log.
use std::sync::Arc;
use std::time::Duration;

use idempotent::delay_queue::DelaySource;
use idempotent::mq::{Consumer, HandlerResult, Message, Messages, Schedule, Source};
use idempotent::{Executor, Policy, Scene, idempotent};
use sqlx::{Pool, Transaction};
use tokio::time::sleep;

use super::broker::{self, OutboxBroker};
use super::home::Home;
use super::statements::Statements;
use super::{Body, Note, RETRIES, rabbit};
use crate::delivery::database::on_database;
use crate::delivery::process::{Point, ProcessContext, Stop, stopped};
use crate::delivery::{DeliveryFlaw, SqlStore};
use crate::failed::Failed;
#[cfg(feature = "rocketmq")]
use crate::mq::rocket;
use crate::mq::streams;

const GRACE: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(1);

#[idempotent(key = id, scope = "outbox", transaction = leased(tx))]
async fn book<Db: Statements>(
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

/// Consumes until the stop signal.
pub(in crate::delivery) async fn consume(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    on_database!(SqlStore::of(&context.start.database), Db => consume_from::<Db>(context, stop).await)
}

async fn consume_from<Db: Statements>(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    let (broker, url) = OutboxBroker::of(&context.start.broker)?;
    match broker {
        OutboxBroker::Delay => run::<Db, _>(DelaySource::new(&broker::queue(url).await), context, stop).await,
        OutboxBroker::Rabbitmq => run::<Db, _>(rabbit::source(url)?, context, stop).await,
        OutboxBroker::Streams => run::<Db, _>(streams::source(url).await, context, stop).await,
        #[cfg(feature = "rocketmq")]
        OutboxBroker::Rocketmq => run::<Db, _>(rocket::source(url)?, context, stop).await,
    }
}

async fn run<Db: Statements, S: Source>(source: S, context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    let Home { pool, outbox, store, .. } = Home::<Db>::reach(&context.start.database).await?;
    let policy = Policy::new().max_retries(RETRIES).lease(LEASE);
    let policy = policy.retry_delay(Duration::from_millis(10)).retry_delay_max(Duration::from_millis(60));
    let policy = policy.in_flight_delay(Duration::from_millis(50)).in_flight_delay_max(Duration::from_millis(200));
    let executor = Executor::builder(store).policy(Scene::Mq, policy).build()?;
    let own = context.clone();
    let handling = Messages::<Body>::json().annotated(move |message| handle::<Db>(own.clone(), pool.clone(), message));
    let counts = source.capabilities().counts;
    let mut consumer = Consumer::builder(source, "outbox", &executor)
        .concurrency(4)
        .grace(GRACE)
        .schedule(Schedule::exponential(Duration::from_millis(10), Duration::from_millis(60)))
        .log(Arc::new(outbox));
    if counts {
        // Postponed deliveries, and those of killed consumers, return again and again.
        consumer = consumer.max_deliveries(1_000_000);
    }
    let consumer = consumer.build(handling)?;
    consumer.run(stopped(stop)).await?;
    Ok(())
}

async fn handle<Db: Statements>(context: Arc<ProcessContext>, pool: Pool<Db>, message: Message<Body>) -> HandlerResult {
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

//! The parts that the consumers of all plays share.
use std::sync::Arc;
use std::time::Duration;

use idempotent::mq::{Consumer, ConsumerBuilder, HandlerResult, MessageHandler, Schedule, Source};
use idempotent::{Executor, Policy, Scene, Store, idempotent};
use serde::Serialize;
use sqlx::{Pool, Transaction};
use tokio::time::sleep;

use super::DeliveryFlaw;
use super::database::Database;
use super::process::{Point, ProcessContext, Stop, stopped};
use crate::failed::Failed;

/// The number of retries of a failing handler. Killed runs count, too.
pub(super) const RETRIES: u32 = 12;
/// The lease of a record that is claimed before its transaction.
const LEASE: Duration = Duration::from_secs(1);
/// The time for running handlers after the stop signal.
const GRACE: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_millis(60);

/// Creates an executor whose handlers have [`RETRIES`].
pub(super) fn executor(store: impl Store) -> anyhow::Result<Executor> {
    limited(store, RETRIES)
}

/// Creates an executor whose handlers have this number of retries.
pub(super) fn limited(store: impl Store, retries: u32) -> anyhow::Result<Executor> {
    let policy = Policy::new().max_retries(retries).lease(LEASE).retry_delay(SHORT).retry_delay_max(LONG);
    let policy = policy.in_flight_delay(SHORT * 4).in_flight_delay_max(SHORT * 20);
    Ok(Executor::builder(store).policy(Scene::Mq, policy).build()?)
}

/// Consumes until the stop signal.
pub(super) async fn run<S: Source>(
    source: S,
    name: &'static str,
    executor: &Executor,
    handling: MessageHandler,
    stop: Stop,
    settings: impl FnOnce(ConsumerBuilder<S>) -> ConsumerBuilder<S>,
) -> anyhow::Result<()> {
    let consumer = Consumer::builder(source, name, executor).concurrency(4).grace(GRACE);
    let consumer = settings(consumer.schedule(Schedule::exponential(SHORT, LONG))).build(handling)?;
    consumer.run(stopped(stop)).await?;
    Ok(())
}

/// Allows any number of deliveries: postponed ones, and those of killed consumers, return again and again.
pub(super) fn returning<S: Source>(consumer: ConsumerBuilder<S>) -> ConsumerBuilder<S> {
    consumer.max_deliveries(1_000_000)
}

/// Returns the answer of a handler.
pub(super) fn answer<E>(handled: Result<(), E>) -> HandlerResult {
    match handled {
        Ok(()) => HandlerResult::Done,
        Err(_) => HandlerResult::Again { after: None, error: "it fails".into() },
    }
}

/// A run of a message whose handler always fails, in the notes.
#[derive(Serialize)]
struct Fails<'a> {
    fails: Failing<'a>,
}

#[derive(Serialize)]
struct Failing<'a> {
    id: &'a str,
}

/// Writes the effect of a message in the transaction of its record, or as a flaw demands.
pub(super) async fn handle<Db: Database>(
    context: Arc<ProcessContext>,
    pool: &Pool<Db>,
    id: String,
    poison: bool,
) -> HandlerResult {
    match context.start.flaw {
        Some(DeliveryFlaw::Unbound | DeliveryFlaw::RunsUnbound) if !poison => {
            // Neither its key nor its transaction.
            let written = async { Db::effect(&mut *pool.acquire().await?, &id).await }.await;
            context.may_die(Point::BeforeSettling);
            return answer(written);
        }
        Some(DeliveryFlaw::AnswersFirst | DeliveryFlaw::AcknowledgesFirst) if !poison => {
            tokio::spawn(async move {
                sleep(Duration::from_millis(100)).await;
                let _ = book::<Db>(&context, &id, poison).await;
            });
            return HandlerResult::Done;
        }
        _ => {}
    }
    let booked = book::<Db>(&context, &id, poison).await;
    context.may_die(Point::BeforeSettling);
    answer(booked)
}

#[idempotent(key = id, scope = "delivery", transaction = leased(tx))]
async fn book<Db: Database>(
    context: &ProcessContext,
    id: &str,
    poison: bool,
    tx: &mut Transaction<'_, Db>,
) -> Result<(), Failed> {
    if poison {
        context.notes.write(&Fails { fails: Failing { id } });
    }
    context.may_die(Point::BeforeEffect);
    Db::effect(tx, id).await?;
    context.may_die(Point::InTransaction);
    // A failure rolls the effect back.
    if poison { Err(Failed) } else { Ok(()) }
}

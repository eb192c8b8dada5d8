//! The consumers of both kinds, and their handler.
use std::sync::Arc;
use std::time::Duration;

use idempotent::delay_queue::{DelayDelivery, DelayQueue, DelaySource, RetryDelay, RollbackResult};
use idempotent::mq::{Message, Messages};
use idempotent::{Executor, SqliteStore, idempotent};
use sqlx::{Sqlite, SqlitePool, Transaction};
use tokio::time::sleep;

use super::note::{Body, Note, Topic};
use super::{RETRIES, topics};
use crate::delivery::process::{Point, ProcessContext, Stop, now, stopped};
use crate::delivery::{DeliveryFlaw, consumers, effects};
use crate::failed::Failed;

/// Taken at once by a taker.
const ROOM: usize = 6;
/// The range of delays of a rollback.
const AGAIN_MS: (u64, u64) = (10, 60);
/// The pause after an error of the server.
const REST: Duration = Duration::from_millis(50);
struct Worker {
    context: Arc<ProcessContext>,
    executor: Executor,
    /// The pool for writes outside of a transaction, for the workers with this bug.
    pool: SqlitePool,
}

impl Worker {
    async fn new(context: &Arc<ProcessContext>) -> anyhow::Result<Arc<Self>> {
        let executor = consumers::limited(SqliteStore::open(&context.start.database).await?, RETRIES)?;
        let pool = effects::pool(&context.start.database).await?;
        Ok(Arc::new(Self { context: context.clone(), executor, pool }))
    }

    async fn handle(&self, topic: Topic, id: &str, delivered: u32, body: &[u8]) -> Result<(), Failed> {
        let name = format!("{}/{id}", topic.name());
        let sent = Body::read(body);
        let whole = sent.is_some();
        let sent = sent.unwrap_or_else(|| Body::new(0, false));
        let fails = sent.fails(delivered);
        let began = Note::Began { topic, id: id.to_owned(), n: sent.n, delivered, at: now().0, whole };
        self.context.notes.write(&began);
        self.context.may_die(Point::BeforeEffect);
        if self.context.start.flaw == Some(DeliveryFlaw::Unmarked) {
            if fails {
                return Err(Failed);
            }
            return Ok(effects::put(&self.pool, &name, sent.n).await?);
        }
        match topic {
            Topic::Work => self.executor.scope(count(&self.context, &name, (sent.n, fails))).await,
            Topic::Bare => self.executor.scope(apply(&self.context, &name, (sent.n, fails))).await,
        }
    }
}

/// Once, whatever is killed: its record is committed with what it does. Attempts are the record's.
#[idempotent(key = name, scope = "work", transaction = leased(tx))]
async fn count(
    context: &ProcessContext,
    name: &str,
    what: (u64, bool),
    tx: &mut Transaction<'_, Sqlite>,
) -> Result<(), Failed> {
    effect(context, name, what, tx).await
}

/// A handler in a taker, whose attempts the queue counts.
#[idempotent(key = name, scope = "bare", transaction = tx)]
async fn apply(
    context: &ProcessContext,
    name: &str,
    what: (u64, bool),
    tx: &mut Transaction<'_, Sqlite>,
) -> Result<(), Failed> {
    effect(context, name, what, tx).await
}

async fn effect(
    context: &ProcessContext,
    name: &str,
    (n, fails): (u64, bool),
    tx: &mut Transaction<'_, Sqlite>,
) -> Result<(), Failed> {
    context.notes.write(&Note::Runs { name: name.to_owned() });
    let insert = sqlx::query(effects::INSERT);
    insert.bind(name).bind(n.cast_signed()).execute(&mut **tx).await?;
    context.may_die(Point::InTransaction);
    // Rolled back.
    if fails { Err(Failed) } else { Ok(()) }
}

/// Runs annotated handlers in a consumer until the stop signal.
pub(in crate::delivery) async fn consume(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    let [queue, _] = topics(&context.start.broker, context.start.flaw).await?;
    let worker = Worker::new(context).await?;
    let executor = worker.executor.clone();
    let handling = Messages::raw().annotated(move |message: Message<()>| {
        let worker = worker.clone();
        async move {
            let delivery = &message.delivery;
            let (id, delivered) = (delivery.id.clone().unwrap_or_default(), delivery.delivered.unwrap_or_default());
            let handled = worker.handle(Topic::Work, &id, delivered, &delivery.body).await;
            worker.context.may_die(Point::BeforeSettling);
            consumers::answer(handled)
        }
    });
    consumers::run(DelaySource::new(&queue), "delay", &executor, handling, stop, |consumer| consumer).await
}

/// Receives, commits and rolls back until the stop signal.
pub(in crate::delivery) async fn take(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    let [_, queue] = topics(&context.start.broker, context.start.flaw).await?;
    let worker = Worker::new(context).await?;
    let mut taker = queue.receiver();
    let mut stop = std::pin::pin!(stopped(stop));
    loop {
        let taken = tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            taken = taker.receive(ROOM) => taken,
        };
        match taken {
            Ok(taken) => {
                context.may_die(Point::AfterTake);
                for taken in &taken {
                    settle(&worker, &queue, taken).await;
                }
            }
            Err(_) => sleep(REST).await,
        }
    }
}

async fn settle(worker: &Worker, queue: &DelayQueue, taken: &DelayDelivery) {
    let context = &worker.context;
    // What is not known to be settled comes again.
    if context.start.flaw == Some(DeliveryFlaw::CommitsFirst) {
        let _ = queue.commit(taken).await;
    }
    if context.dice.percent(20) {
        let _ = queue.extend(taken).await;
    }
    let answer = worker.handle(Topic::Bare, &taken.id, taken.delivered, &taken.body).await;
    context.may_die(Point::BeforeSettling);
    if answer.is_ok() {
        let _ = context.may_die_in(Point::AtSettling, queue.commit(taken)).await;
        return;
    }
    let delay = context.dice.ms(AGAIN_MS.0, AGAIN_MS.1);
    let (back, delay) = if context.dice.percent(50) {
        (RetryDelay::After(delay), delay)
    } else {
        (RetryDelay::Immediate, Duration::ZERO)
    };
    let asked = now().0;
    let rolled_back = context.may_die_in(Point::AtSettling, queue.rollback(taken, back, "it fails")).await;
    if rolled_back.is_ok_and(|rolled_back| rolled_back == RollbackResult::Again) {
        let (topic, id, delivered) = (Topic::Bare, taken.id.clone(), taken.delivered);
        let delay = u64::try_from(delay.as_micros()).unwrap_or_default();
        context.notes.write(&Note::Back { topic, id, delivered, asked, delay });
    }
}

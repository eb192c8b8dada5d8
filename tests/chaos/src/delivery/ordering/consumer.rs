//! Annotated handlers that come after each other, each after the one that it names.
use std::sync::Arc;

use idempotent::delay_queue::DelaySource;
use idempotent::mq::{HandlerResult, Message, Messages};
use idempotent::{Executor, Rejection, idempotent};
use sqlx::{Sqlite, SqlitePool, Transaction};

use super::{Link, Note, executor, queue};
use crate::delivery::process::{Point, ProcessContext, Stop, now};
use crate::delivery::{DeliveryFlaw, consumers, effects};

#[derive(Debug)]
enum Failed {
    /// The turn of the link has not come.
    Deferred,
    /// Another worker holds the key, or the store did not respond.
    Rejected,
    ByItself,
}

impl From<Rejection> for Failed {
    fn from(why: Rejection) -> Self {
        match why {
            Rejection::Waiting { .. } | Rejection::Held { .. } => Self::Deferred,
            _ => Self::Rejected,
        }
    }
}

impl From<sqlx::Error> for Failed {
    fn from(_: sqlx::Error) -> Self {
        Self::ByItself
    }
}

struct Worker {
    context: Arc<ProcessContext>,
    pool: SqlitePool,
}

/// The first has none before it.
fn before(link: &Link) -> Option<(u64, u64)> {
    link.number.checked_sub(1).filter(|before| *before > 0).map(|before| (link.chain, before))
}

#[idempotent(
    key = (link.chain, link.number),
    after = before(&link),
    scope = "chains",
    on_broken_order = skip("5s"),
)]
async fn beside(worker: &Worker, link: Link) -> Result<(), Failed> {
    worker.beside(link).await
}

#[idempotent(
    key = (link.chain, link.number),
    after = before(&link),
    scope = "chains",
    on_broken_order = skip("5s"),
    transaction = leased(tx),
)]
async fn within(worker: &Worker, link: Link, tx: &mut Transaction<'_, Sqlite>) -> Result<(), Failed> {
    worker.within(link, tx).await
}

/// A handler for both stores, in which some links always fail.
#[idempotent(
    key = (link.chain, link.number),
    after = before(&link),
    scope = "chains",
    on_broken_order = skip("5s"),
)]
async fn broken(worker: &Worker, link: Link) -> Result<(), Failed> {
    worker.begins(link);
    Err(Failed::ByItself)
}

/// Wrong on purpose: as if there were no order.
#[idempotent(key = (link.chain, link.number), scope = "chains")]
async fn at_once(worker: &Worker, link: Link) -> Result<(), Failed> {
    worker.begins(link);
    Ok(effects::put(&worker.pool, &link.name(), link.number).await?)
}

/// Handlers of links that are numbers of a registered stream.
mod numbered {
    use super::*;

    #[idempotent(
        key = (link.chain, link.number),
        sequence = (link.chain, link.number),
        scope = "streams",
        on_broken_order = skip("5s"),
    )]
    pub(super) async fn beside(worker: &Worker, link: Link) -> Result<(), Failed> {
        worker.beside(link).await
    }

    #[idempotent(
        key = (link.chain, link.number),
        sequence = (link.chain, link.number),
        scope = "streams",
        on_broken_order = skip("5s"),
        transaction = leased(tx),
    )]
    pub(super) async fn within(worker: &Worker, link: Link, tx: &mut Transaction<'_, Sqlite>) -> Result<(), Failed> {
        worker.within(link, tx).await
    }

    /// A handler for both stores, in which some links always fail.
    #[idempotent(
        key = (link.chain, link.number),
        sequence = (link.chain, link.number),
        scope = "streams",
        on_broken_order = skip("5s"),
    )]
    pub(super) async fn broken(worker: &Worker, link: Link) -> Result<(), Failed> {
        worker.begins(link);
        Err(Failed::ByItself)
    }
}

impl Worker {
    async fn beside(&self, link: Link) -> Result<(), Failed> {
        self.begins(link);
        effects::put(&self.pool, &link.name(), link.number).await?;
        self.context.may_die(Point::AfterEffect);
        Ok(())
    }

    async fn within(&self, link: Link, tx: &mut Transaction<'_, Sqlite>) -> Result<(), Failed> {
        self.begins(link);
        let insert = sqlx::query(effects::INSERT).bind(link.name()).bind(link.number.cast_signed());
        insert.execute(&mut **tx).await?;
        self.context.may_die(Point::InTransaction);
        Ok(())
    }

    fn begins(&self, link: Link) {
        self.context.notes.write(&Note::Runs { link, at: now().0 });
        self.context.may_die(Point::BeforeEffect);
    }

    async fn handle(&self, link: Link) -> Result<(), Failed> {
        match (self.context.start.flaw, link.numbered) {
            (_, true) if link.poison => numbered::broken(self, link).await,
            (_, false) if link.poison => broken(self, link).await,
            (Some(DeliveryFlaw::IgnoresLine), true) | (Some(DeliveryFlaw::IgnoresOrder), false) => {
                at_once(self, link).await
            }
            (_, true) if self.context.start.in_transaction => numbered::within(self, link).await,
            (_, true) => numbered::beside(self, link).await,
            (_, false) if self.context.start.in_transaction => within(self, link).await,
            (_, false) => beside(self, link).await,
        }
    }
}

/// Consumes until the stop signal.
pub(in crate::delivery) async fn consume(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    let queue = queue(&context.start.broker).await;
    let worker = Arc::new(Worker { context: context.clone(), pool: effects::pool(&context.start.database).await? });
    let executor = executor(context).await?;
    let own = executor.clone();
    let handling = Messages::<Link>::json().annotated(move |message| handle(worker.clone(), own.clone(), message));
    let settings = |consumer| consumers::returning(consumer).concurrency(8);
    consumers::run(DelaySource::new(&queue), "chains", &executor, handling, stop, settings).await
}

async fn handle(worker: Arc<Worker>, executor: Executor, message: Message<Link>) -> HandlerResult {
    let link = message.body;
    let came = now().0;
    worker.context.notes.write(&Note::Came { link, at: came });
    if worker.context.start.flaw == Some(DeliveryFlaw::DropsWaiting) && !link.poison {
        // In a task of its own: how it ends does not settle the message.
        let _ = tokio::spawn(async move { executor.scope(worker.handle(link)).await }).await;
        return HandlerResult::Done;
    }
    let answer = worker.handle(link).await;
    if let Err(Failed::Deferred) = answer {
        worker.context.notes.write(&Note::Deferred { link, came, at: now().0 });
    }
    worker.context.may_die(Point::BeforeSettling);
    consumers::answer(answer)
}

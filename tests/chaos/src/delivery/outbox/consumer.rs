//! Annotated handlers whose effect and record are one transaction, with the outbox as their consumer's log.
use std::sync::Arc;

use idempotent::delay_queue::DelaySource;
use idempotent::mq::{ConsumerBuilder, HandlerResult, Message, Messages, Source};
use sqlx::Pool;

use super::broker::{self, OutboxBroker};
use super::home::Home;
use super::statements::Statements;
use super::{Body, Note, rabbit};
use crate::delivery::database::on_database;
use crate::delivery::process::{ProcessContext, Stop};
use crate::delivery::{SqlStore, consumers};
#[cfg(feature = "rocketmq")]
use crate::mq::rocket;
use crate::mq::streams;

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
    let Home { pool, outbox, store, .. } = Home::<Db>::reach(&context.start.database).await;
    let executor = consumers::executor(store)?;
    let own = context.clone();
    let handling = Messages::<Body>::json().annotated(move |message| handle::<Db>(own.clone(), pool.clone(), message));
    let counts = source.capabilities().counts;
    let settings = |consumer: ConsumerBuilder<S>| {
        let consumer = consumer.log(Arc::new(outbox));
        if counts { consumers::returning(consumer) } else { consumer }
    };
    consumers::run(source, "outbox", &executor, handling, stop, settings).await
}

async fn handle<Db: Statements>(context: Arc<ProcessContext>, pool: Pool<Db>, message: Message<Body>) -> HandlerResult {
    let delivery = &message.delivery;
    let Some(id) = delivery.id.clone() else { return consumers::answer(Err(())) };
    let member = delivery.position.offset.clone().map(Into::into);
    context.notes.write(&Note::Began { id: id.to_string(), member });
    consumers::handle::<Db>(context, &pool, id.to_string(), message.body.poison).await
}

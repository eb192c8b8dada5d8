//! Consumers with annotated handlers, whose effect and record are one transaction.
use std::sync::Arc;
use std::time::Duration;

use idempotent::mq::{HandlerResult, Message, Messages};
use sqlx::Pool;

use super::Note;
use super::site::OpenTable;
use super::statements::TaskTables;
use crate::delivery::database::on_database;
use crate::delivery::process::{ProcessContext, Stop, now};
use crate::delivery::wire::Role;
use crate::delivery::{SqlStore, consumers};

const WINDOW: Duration = Duration::from_millis(200);

/// Consumes until the stop signal.
pub(in crate::delivery) async fn consume(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    on_database!(SqlStore::of(&context.start.database), Db => consume_on::<Db>(context, stop).await)
}

async fn consume_on<Db: TaskTables>(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    let OpenTable { pool, table, store } = OpenTable::<Db>::reach(&context.start.database).await;
    let executor = consumers::executor(store)?;
    let source = match context.start.role {
        Role::TableWheel => table.source().on_wheel(WINDOW),
        _ => table.source(),
    };
    let own = context.clone();
    let handling = Messages::raw().annotated(move |message| handle::<Db>(own.clone(), pool.clone(), message));
    consumers::run(source, "delay-table", &executor, handling, stop, consumers::returning).await
}

async fn handle<Db: TaskTables>(context: Arc<ProcessContext>, pool: Pool<Db>, message: Message<()>) -> HandlerResult {
    let Some(id) = message.delivery.id.clone() else { return consumers::answer(Err(())) };
    let poison = message.delivery.body == b"poison";
    context.notes.write(&Note::Began { id: id.to_string(), at: now().0 });
    consumers::handle::<Db>(context, &pool, id.to_string(), poison).await
}

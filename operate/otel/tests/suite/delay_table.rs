//! The trace context of work in a delay table on SQLite.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore};
use idempotent_mq::{Consumer, KeyFrom, Message, Messages};
use idempotent_otel::{ConsumerTracer, ProducerTracer};
use idempotent_sqlx::{DelayTable, ScheduledTask};
use tokio::sync::Notify;

use crate::world::{Traces, database, id, links, service_span};

#[tokio::test]
async fn due_work_belongs_to_the_trace_that_scheduled_it() {
    let traces = Traces::start();
    let (_folder, pool) = database().await;
    let table = DelayTable::builder(pool).create(true).open().await.unwrap();
    let request = service_span("request");
    let headers = request.in_scope(|| ProducerTracer::new("sqlite").headers("reminders"));
    drop(request);
    let task = ScheduledTask::after("order-17", Duration::ZERO, "17");
    let task = headers.into_iter().fold(task, |task, (name, value)| task.header(name, value));
    table.put(&task).await.unwrap();

    let done = Arc::new(Notify::new());
    let ran = done.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_: Message<()>| {
        ran.notify_one();
        async { Ok::<_, &str>(()) }
    });
    let executor = Executor::new(MemoryStore::new());
    let consumer = Consumer::builder(table.source(), "reminders", &executor)
        .observer(ConsumerTracer::new("sqlite"))
        .build(handling)
        .unwrap();
    consumer.run(async move { done.notified().await }).await.unwrap();
    let (request, create) = (traces.one("request"), traces.one("create reminders"));
    let process = traces.arrives("process idempotent_delay").await;
    assert_eq!(process.parent_span_id, id(&create));
    assert_eq!(links(&process), [(id(&create), String::new())]);
    assert_eq!(process.span_context.trace_id(), request.span_context.trace_id());
}

//! The trace context on its way through an outbox or a delay table on SQLite.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore};
use idempotent_mq::{Consumer, KeyFrom, Message, Messages, OutboundMessage, Publish};
use idempotent_otel::{ConsumerTracer, ProducerTracer};
use idempotent_sqlx::{DelayTable, Enqueued, Outbox, Relay, ScheduledTask};
use opentelemetry::trace::{SpanId, SpanKind, Status};
use sqlx::Sqlite;
use sqlx::sqlite::SqlitePool;
use tokio::sync::Notify;
use tracing::Instrument;

use crate::world::{Broker, Traces, attribute, database, header, id, links, service_span, traceparent};

struct World {
    traces: Traces,
    pool: SqlitePool,
    outbox: Outbox<Sqlite>,
    broker: Broker,
    tracer: ProducerTracer,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let traces = Traces::start();
        let (folder, pool) = database().await;
        let outbox = Outbox::builder(pool.clone()).create(true).open().await.unwrap();
        let (broker, tracer) = (Broker::default(), ProducerTracer::new("rabbitmq"));
        Self { traces, pool, outbox, broker, tracer, _folder: folder }
    }

    fn relay(&self) -> Relay<Sqlite> {
        Relay::new(&self.outbox, Arc::new(self.tracer.publisher(self.broker.clone())))
    }

    /// Writes messages in one transaction, inside of a span of the application.
    async fn enqueue(&self, name: &'static str, messages: &[OutboundMessage]) -> Vec<Enqueued> {
        let write = async {
            let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
            let mut enqueued = Vec::new();
            for message in messages {
                enqueued.push(self.outbox.enqueue(&mut tx, &self.tracer.create(message.clone())).await.unwrap());
            }
            tx.commit().await.unwrap();
            enqueued
        };
        write.instrument(service_span(name)).await
    }
}

fn message(id: &str) -> OutboundMessage {
    OutboundMessage::new("payments", id, "17")
}

#[tokio::test]
async fn the_relay_sends_and_resends_the_context_of_the_transaction() {
    let world = World::new().await;
    world.enqueue("transaction", &[message("m-1")]).await;
    let (transaction, create) = (world.traces.arrives("transaction").await, world.traces.one("create payments"));
    assert_eq!((create.parent_span_id, &create.span_kind), (id(&transaction), &SpanKind::Producer));
    let relay = world.relay();
    for sends in 1..=2 {
        assert_eq!(relay.round().await.unwrap().sent, 1);
        let taken = world.broker.taken();
        assert_eq!(taken.len(), sends);
        assert_eq!(header(&taken[sends - 1], "traceparent").unwrap(), traceparent(&create));
        let mut tx = world.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        world.outbox.resend(&mut tx, "m-1", "an operator", "the consumer lost it").await.unwrap();
        tx.commit().await.unwrap();
    }
    let sends = world.traces.all("send payments");
    assert_eq!(sends.len(), 2);
    for send in sends {
        assert_eq!((&send.span_kind, links(&send)), (&SpanKind::Client, vec![(id(&create), String::new())]));
        assert_eq!(send.parent_span_id, SpanId::INVALID, "the relay belongs to no request");
        assert_eq!((&send.status, attribute(&send, "error.type")), (&Status::Unset, None));
        assert_eq!(attribute(&send, "messaging.operation.type").unwrap(), "send");
        assert_eq!(attribute(&send, "messaging.system").unwrap(), "rabbitmq");
        assert_eq!(attribute(&send, "messaging.batch.message_count"), None, "no batch");
    }
}

#[tokio::test]
async fn the_same_message_in_another_trace_is_the_same_message() {
    let world = World::new().await;
    assert_eq!(world.enqueue("first", &[message("m-1")]).await, [Enqueued::New]);
    assert_eq!(world.enqueue("second", &[message("m-1")]).await, [Enqueued::Already]);
    world.relay().round().await.unwrap();
    let creates = world.traces.all("create payments");
    assert_eq!(creates[0].parent_span_id, id(&world.traces.arrives("first").await));
    assert_eq!(header(&world.broker.taken()[0], "traceparent").unwrap(), traceparent(&creates[0]));
}

#[tokio::test]
async fn a_batch_links_to_each_message_and_reports_a_refusal() {
    let world = World::new().await;
    world.enqueue("transaction", &[message("m-1"), message("m-2")]).await;
    world.relay().round().await.unwrap();
    let creates: Vec<_> = world.traces.all("create payments").iter().map(|span| (id(span), String::new())).collect();
    let send = world.traces.one("send payments");
    assert_eq!((links(&send), creates.len()), (creates, 2));
    assert_eq!(attribute(&send, "messaging.batch.message_count").unwrap(), "2");

    let refused = OutboundMessage::new("refused", "m-3", "17");
    world.enqueue("refused", &[refused, message("m-4")]).await;
    world.relay().round().await.unwrap();
    let send = world.traces.one("send");
    assert_eq!(
        (&send.status, attribute(&send, "error.type").unwrap()),
        (&Status::error("refused"), "refused".to_owned())
    );
    assert_eq!(attribute(&send, "messaging.destination.name"), None, "two topics");
}

#[tokio::test]
async fn a_message_without_context_gets_one_when_it_is_sent() {
    let world = World::new().await;
    let mut tx = world.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    world.outbox.enqueue(&mut tx, &message("m-1")).await.unwrap();
    tx.commit().await.unwrap();
    let publisher = world.tracer.publisher(world.broker.clone());
    world.relay().round().await.unwrap();
    let create = world.traces.one("create payments");
    assert_eq!(links(&world.traces.one("send payments"))[0].0, id(&create));
    assert_eq!(header(&world.broker.taken()[0], "traceparent").unwrap(), traceparent(&create));
    assert!(!publisher.delays());
}

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

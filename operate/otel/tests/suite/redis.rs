//! One trace from a transaction over a relay, a stream and a delay queue on Redis.
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Executor, Tracing};
use idempotent_harness::servers::RedisServer;
use idempotent_mq::{Consumer, KeyFrom, Message, Messages, OutboundMessage, Publish, Source};
use idempotent_otel::{ConsumerTracer, ProducerTracer, RunTracer};
use idempotent_redis::{DelayProducer, DelayQueue, DelaySource, RedisStore};
use idempotent_redis_streams::{StartPosition, StreamsPublisher, StreamsSource};
use idempotent_sqlx::{Outbox, Relay};
use opentelemetry_sdk::trace::SpanData;
use tracing::Instrument;

use crate::world::{Traces, attribute, database, id, links, service_span};

/// Limit for events that are certain to happen.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a consumer until it has acknowledged this number of deliveries.
async fn acknowledges<S, F, Fut>(source: S, system: &str, executor: &Executor, deliveries: u64, handler: F)
where
    S: Source,
    F: Fn(Message<()>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), &'static str>> + Send + 'static,
{
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(handler);
    let builder = Consumer::builder(source, "billing", executor).observer(ConsumerTracer::new(system)).concurrency(1);
    // The duplicate is not claimed while the first copy runs.
    let builder = builder.claim_ahead(0);
    let consumer = builder.build(handling).unwrap();
    let counters = consumer.counters();
    let all_are_acked = async move {
        while counters.counts().acked < deliveries {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, consumer.run(all_are_acked)).await.unwrap().unwrap();
}

fn process_spans(traces: &Traces, name: &str) -> Vec<SpanData> {
    let mut spans = traces.all(name);
    spans.sort_by_key(|span| span.start_time);
    spans
}

#[tokio::test]
async fn a_trace_goes_on_over_an_outbox_a_stream_and_a_delay_queue() {
    let traces = Traces::start();
    let server = RedisServer::start();
    let (_folder, pool) = database().await;
    let outbox = Outbox::builder(pool.clone()).create(true).open().await.unwrap();
    let streams = ProducerTracer::new("redis_streams");
    let transaction = async {
        let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let message = streams.create(OutboundMessage::new("orders", "order-17", "17"));
        outbox.enqueue(&mut tx, &message).await.unwrap();
        tx.commit().await.unwrap();
    };
    transaction.instrument(service_span("transaction")).await;
    let publisher = Arc::new(streams.publisher(StreamsPublisher::new(server.url()).unwrap()));
    assert_eq!(Relay::new(&outbox, publisher.clone()).round().await.unwrap().sent, 1);
    // The producer sends its message again, in another trace.
    let resend = async {
        let again = OutboundMessage::new("orders", "order-17", "17");
        publisher.publish(&[again]).await.remove(0).unwrap();
    };
    resend.instrument(service_span("sent again")).await;

    let store = RedisStore::connect(server.url()).await.unwrap();
    let executor = Executor::builder(store).observer((Tracing, RunTracer::new())).build().unwrap();
    let queue = DelayQueue::connect(server.url(), "reminders").await.unwrap();
    let delayed = ProducerTracer::new("redis");
    let remind = Arc::new(delayed.publisher(DelayProducer::new(&queue)));
    let source = StreamsSource::builder(server.url(), "orders", "billing").declare(StartPosition::Beginning);
    let source = source.id_field("id").connect().await.unwrap();
    acknowledges(source, "redis_streams", &executor, 2, move |_| {
        let (remind, delayed) = (remind.clone(), delayed.clone());
        async move {
            let message = delayed.create(OutboundMessage::new("reminders", "reminder-17", "17"));
            remind.publish(&[message]).await.remove(0).map(drop).map_err(|_| "not sent")
        }
    })
    .await;
    acknowledges(DelaySource::new(&queue), "redis", &executor, 1, |_| async { Ok(()) }).await;

    let (transaction, create) = (traces.arrives("transaction").await, process_spans(&traces, "create orders"));
    let orders = process_spans(&traces, "process orders");
    let outcomes: Vec<_> = orders.iter().map(|span| attribute(span, "idempotent.outcome").unwrap()).collect();
    assert_eq!(outcomes, ["ran", "replayed"]);
    assert_eq!((create[0].parent_span_id, orders[0].parent_span_id), (id(&transaction), id(&create[0])));
    assert_eq!(attribute(&orders[0], "messaging.system").unwrap(), "redis_streams");
    let trace = |span: &SpanData| span.span_context.trace_id();
    // The reminder is work of the handler, so it is in the trace of the transaction.
    let reminder = traces.one("process reminders");
    assert_eq!(reminder.parent_span_id, id(&traces.one("create reminders")));
    assert_eq!((trace(&orders[0]), trace(&reminder)), (trace(&transaction), trace(&transaction)));
    // The duplicate is in the trace of its own sender, and its run links to the first run.
    assert_eq!(trace(&orders[1]), trace(&traces.one("sent again")));
    let runs = traces.all("idempotent");
    let run_of = |process: &SpanData| runs.iter().find(|run| run.parent_span_id == id(process)).unwrap();
    assert_eq!(links(run_of(&orders[1])), [(id(run_of(&orders[0])), "first_run".to_owned())]);
    assert_eq!(links(&traces.all("send orders")[0])[0].0, id(&create[0]));
}

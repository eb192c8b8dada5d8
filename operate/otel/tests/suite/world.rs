//! A tracer provider whose spans are kept in memory, and helpers for runs and consumers.
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{
    Call, DefaultReply, Executor, Handler, Identity, Json, MemoryStore, Observer, Outcome, Policy, Rejection, Scene,
    Store, Tracing,
};
use idempotent_mq::{
    Consumer, ConsumerCounts, Delivery, HandlerResult, KeyFrom, MemoryQueue, Message, Messages, OutboundMessage,
    Position, Publish, PublishError, Published, Schedule, Undecodable,
};
use idempotent_otel::{ConsumerTracer, RunTracer};
use idempotent_testkit::VirtualClock;
use opentelemetry::trace::{SpanId, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider, SpanData};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, Span};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

/// A subscriber for the thread of the test, with an exporter in memory.
pub struct Traces {
    exporter: InMemorySpanExporter,
    /// The exporter lives as long as the provider.
    _provider: SdkTracerProvider,
    _guard: idempotent_harness::Logs,
}

impl Traces {
    pub fn start() -> Self {
        Self::with(LevelFilter::TRACE, Sampler::AlwaysOn)
    }

    pub fn with(level: LevelFilter, sampler: Sampler) -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider =
            SdkTracerProvider::builder().with_sampler(sampler).with_simple_exporter(exporter.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("suite"));
        let filter = Targets::new().with_target("idempotent", level).with_target("service", level);
        // A filter of all layers: after a check by the macro `enabled!`, as in sqlx, a filter of one layer drops the next span.
        let guard = idempotent_harness::logs_to(registry().with(filter).with(layer));
        Self { exporter, _provider: provider, _guard: guard }
    }

    /// Returns the ended spans in the order of their ends.
    pub fn ended(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().unwrap()
    }

    /// Returns the ended spans with this name.
    pub fn all(&self, name: &str) -> Vec<SpanData> {
        self.ended().into_iter().filter(|span| span.name == name).collect()
    }

    /// Waits for a span around calls of sqlx, whose thread may hold the span for a moment longer.
    pub async fn arrives(&self, name: &str) -> SpanData {
        let arrived = async {
            while self.all(name).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), arrived).await.expect("the span ends");
        self.one(name)
    }

    /// Returns the only span with this name.
    pub fn one(&self, name: &str) -> SpanData {
        let mut all = self.all(name);
        let names: Vec<_> = self.ended().into_iter().map(|span| span.name).collect();
        assert_eq!(all.len(), 1, "{name} of {names:?}");
        all.remove(0)
    }
}

/// Returns the attributes of a span as texts.
pub fn attributes(span: &SpanData) -> BTreeMap<String, String> {
    span.attributes.iter().map(|own| (own.key.to_string(), own.value.to_string())).collect()
}

/// Returns the value of an attribute.
pub fn attribute(span: &SpanData, name: &str) -> Option<String> {
    attributes(span).remove(name)
}

/// Returns the links of a span: the linked span, and the value of `idempotent.link`.
pub fn links(span: &SpanData) -> Vec<(SpanId, String)> {
    let why = |attributes: &[opentelemetry::KeyValue]| {
        let own = attributes.iter().find(|own| own.key.as_str() == "idempotent.link");
        own.map_or_else(String::new, |own| own.value.to_string())
    };
    span.links.iter().map(|link| (link.span_context.span_id(), why(&link.attributes))).collect()
}

/// Returns the id of a span.
pub fn id(span: &SpanData) -> SpanId {
    span.span_context.span_id()
}

/// Returns a span of the application, which ends when it is dropped.
pub fn service_span(name: &'static str) -> Span {
    tracing::info_span!(target: "service", parent: None, "service", otel.name = name)
}

/// A store on a virtual clock.
pub fn store(clock: &VirtualClock) -> MemoryStore {
    MemoryStore::builder().clock(Arc::new(clock.clone())).build()
}

pub fn executor(store: impl Store, clock: &VirtualClock, policy: Policy, observer: impl Observer) -> Executor {
    let builder = Executor::builder(store).clock(Arc::new(clock.clone())).policy(Scene::Mq, policy);
    builder.observer((Tracing, observer)).build().unwrap()
}

pub fn call(key: &str) -> Call {
    Call::new(Identity::new(Scene::Mq, "orders", key))
}

/// Runs a handler inside of a span of the application with this name, and returns the outcome.
pub async fn runs<F>(executor: &Executor, name: &'static str, key: &str, handled: F) -> Outcome
where
    F: Future<Output = Result<u32, Rejection>>,
{
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| handled);
    let run = Outcome::capture(executor.run(call(key), handler));
    run.instrument(service_span(name)).await.1.unwrap()
}

/// Consumes all messages of the queue with a handler that answers by the body.
pub async fn consume(queue: &MemoryQueue, tracer: ConsumerTracer) -> ConsumerCounts {
    consume_with(queue, tracer, &traced()).await
}

/// Returns an executor on a memory store, whose runs are traced.
pub fn traced() -> Executor {
    Executor::builder(MemoryStore::new()).observer((Tracing, RunTracer::new())).build().unwrap()
}

/// Returns a new database in SQLite, with its folder.
pub async fn database() -> (tempfile::TempDir, SqlitePool) {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(folder.path().join("shop.db")).create_if_missing(true);
    (folder, SqlitePool::connect_with(options).await.unwrap())
}

pub async fn consume_with(queue: &MemoryQueue, tracer: ConsumerTracer, executor: &Executor) -> ConsumerCounts {
    let handling = Messages::decoded(text).keyed(KeyFrom::message_id()).run(answers);
    let consumer = Consumer::builder(queue.source(), "billing", executor)
        .schedule(Schedule::exponential(Duration::from_millis(1), Duration::from_millis(1)))
        .observer(tracer)
        .build(handling)
        .unwrap();
    consumer.run(queue.drained()).await.unwrap()
}

fn text(delivery: &Delivery) -> Result<String, Undecodable> {
    String::from_utf8(delivery.body.clone()).map_err(|_| Undecodable("not UTF-8".to_owned()))
}

async fn answers(message: Message<String>) -> HandlerResult {
    match message.body.as_str() {
        "never" => HandlerResult::Never { reason: "no".into() },
        "again" if message.delivery.attempt.unwrap_or(1) == 1 => {
            HandlerResult::Again { after: None, error: "busy".into() }
        }
        _ => HandlerResult::Done,
    }
}

pub fn delivery(id: &str, body: &str) -> Delivery {
    Delivery::new(Position::of("ignored"), body.into()).id(id)
}

/// A broker that keeps what it accepts, and refuses the topic `refused`.
#[derive(Clone, Debug, Default)]
pub struct Broker(pub Arc<Mutex<Vec<OutboundMessage>>>);

impl Broker {
    pub fn taken(&self) -> Vec<OutboundMessage> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait::async_trait]
impl Publish for Broker {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        let take = |message: &OutboundMessage| match message.topic.as_str() {
            "refused" => Err(PublishError::new(idempotent_mq::PublishErrorKind::Refused, "no such topic")),
            _ => {
                self.0.lock().unwrap().push(message.clone());
                Ok(Published::somewhere())
            }
        };
        messages.iter().map(take).collect()
    }
}

/// Returns the value of a header as a text.
pub fn header(message: &OutboundMessage, name: &str) -> Option<String> {
    message.headers.first(name).map(|value| String::from_utf8(value.to_vec()).unwrap())
}

/// Returns the header that refers to a span.
pub fn traceparent(span: &SpanData) -> String {
    let context = &span.span_context;
    format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags().to_u8())
}

//! Exports the traces of a producer and a consumer by OTLP.
//!
//! ```text
//! cargo run -p idempotent-examples --features otel --example traces
//! ```
//!
//! The spans go to a collector at `http://localhost:4318`, or at the address in `OTEL_EXPORTER_OTLP_ENDPOINT`. Without a collector,
//! the messages are consumed as well, and the example says that the spans are lost.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::error::Error;

use idempotent::mq::{Consumer, KeyFrom, MemoryQueue, Message, Messages, OutboundMessage, Publish};
use idempotent::otel::{ConsumerTracer, ProducerTracer, RunTracer};
use idempotent::{Executor, MemoryStore, Tracing};
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Instrument;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Exports the spans of this program and those of the target `idempotent`.
fn install() -> Result<SdkTracerProvider, Box<dyn Error>> {
    let exporter = SpanExporter::builder().with_http().build()?;
    let resource = Resource::builder().with_service_name("shop").build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    let targets = Targets::new().with_target("traces", LevelFilter::INFO).with_target("idempotent", LevelFilter::DEBUG);
    tracing_subscriber::registry().with(targets).with(layer).init();
    Ok(provider)
}

/// Sends the message twice, as a producer does that has lost the first confirmation.
async fn order(queue: &MemoryQueue, tracer: &ProducerTracer) -> Result<(), Box<dyn Error>> {
    let publisher = tracer.publisher(queue.clone());
    let message = tracer.create(OutboundMessage::new("orders", "order-17", "17"));
    for _ in 0..2 {
        for sent in publisher.publish(std::slice::from_ref(&message)).await {
            sent?;
        }
    }
    let context = tracing::Span::current().context();
    println!("trace {}", context.span().span_context().trace_id());
    Ok(())
}

async fn charge(order: Message<u64>) -> Result<(), &'static str> {
    println!("order {}: charged", order.body);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let provider = install()?;
    let queue = MemoryQueue::new("orders");
    order(&queue, &ProducerTracer::new("memory")).instrument(tracing::info_span!("request")).await?;

    let executor = Executor::builder(MemoryStore::new()).observer((Tracing, RunTracer::new())).build()?;
    let handling = Messages::json().keyed(KeyFrom::message_id()).run(charge);
    let consumer = Consumer::builder(queue.source(), "billing", &executor)
        .observer(ConsumerTracer::new("memory"))
        .build(handling)?;
    let counts = consumer.run(queue.drained()).await?;
    println!("{} acknowledged", counts.acked);

    // Sends the last spans, outside of the threads of the runtime.
    let flushed = tokio::task::spawn_blocking(move || provider.shutdown()).await?;
    match flushed {
        Ok(()) => println!("the spans are exported"),
        Err(error) => println!("the spans are lost: {error}"),
    }
    Ok(())
}

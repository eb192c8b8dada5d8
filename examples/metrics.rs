//! Prints the metrics of a consumer as Prometheus scrapes them.
//!
//! Run the example with `cargo run -p idempotent-examples --example metrics`. A service answers `GET /metrics` with this text.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::error::Error;
use std::sync::Arc;

use idempotent::metrics::{MetricsCollector, MetricsObserver, buckets};
use idempotent::mq::{Consumer, KeyFrom, MemoryDeadLetters, MemoryQueue, Message, Messages};
use idempotent::{Executor, MemoryStore, Tracing};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

async fn charge(order: Message<u64>) -> Result<(), &'static str> {
    if order.body == 0 { Err("no such order") } else { Ok(()) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut exporter = PrometheusBuilder::new();
    for (name, bounds) in buckets() {
        exporter = exporter.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds)?;
    }
    // A service calls `install_recorder`, and needs no call of `recorder` below.
    let recorder = Arc::new(exporter.build_recorder());

    let observer = MetricsObserver::new().recorder(recorder.clone()).store("memory");
    let executor = Executor::builder(MemoryStore::new()).observer((Tracing, observer.clone())).build()?;
    let queue = MemoryQueue::new("orders");
    // A message, its duplicate, a second one, and one that no consumer can decode.
    ["17", "17", "18", "what?"].iter().for_each(|body| queue.send(*body));
    let handling = Messages::json().keyed(KeyFrom::body("order", |order: &u64| order.to_string())).run(charge);
    let consumer = Consumer::builder(queue.source(), "billing", &executor).observer(observer).build(handling)?;
    let mut collector = MetricsCollector::new()
        .recorder(recorder.clone())
        .consumer("billing", consumer.counters())
        .dead_letters("orders", MemoryDeadLetters::new(&queue));
    consumer.run(queue.drained()).await?;
    collector.collect().await;

    let text = recorder.handle().render();
    let shown = ["idempotent_deliveries_total", "idempotent_consumer_deliveries_total", "idempotent_dead_letters"];
    for line in text.lines().filter(|line| shown.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0")) {
        println!("{line}");
    }
    let expected = [
        r#"idempotent_deliveries_total{scene="mq",scope="billing",outcome="ran"} 2"#,
        r#"idempotent_deliveries_total{scene="mq",scope="billing",outcome="replayed"} 1"#,
        r#"idempotent_consumer_deliveries_total{group="billing",end="acked"} 3"#,
        r#"idempotent_consumer_deliveries_total{group="billing",end="dead_lettered"} 1"#,
        r#"idempotent_dead_letters{queue="orders"} 1"#,
    ];
    for line in expected {
        assert!(text.lines().any(|shown| shown == line), "{line} is missing");
    }
    Ok(())
}

#[test]
fn a_scrape_shows_the_deliveries_by_their_ends() -> Result<(), Box<dyn Error>> {
    main()
}

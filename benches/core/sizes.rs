//! The cost of a run's span that is filtered out, and the size of the future of an annotated handler.
use std::sync::Arc;
use std::time::Instant;

use idempotent::{Executor, Identity, Lease, MemoryStore, Rejection, Scene, idempotent};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};

use crate::memory::run;
use crate::report::{Goal, Pair, Report, Rounds, nanos};

pub async fn all(report: &Report) {
    if report.wants("executor", "filtered-out span") {
        report.pair(
            ("", "filtered-out span", Some(1)),
            "ns",
            span(report.rounds(21, 20_000, 1)).await,
            Goal::AtMost(0.01),
        );
    }
    if report.wants("executor", "future of an annotated handler") {
        let executor = Executor::new(MemoryStore::new());
        report.value(("", "future of an annotated handler", None), "B", size(&handle(&executor, 1)), Goal::None);
        report.value(("", "future of the same handler, bare", None), "B", size(&bare(1)), Goal::None);
    }
}

#[idempotent(scene = mq, key = order, scope = "bench", with = *executor)]
async fn handle(executor: &Executor, order: u64) -> Result<u64, Rejection> {
    bare(order).await
}

async fn bare(order: u64) -> Result<u64, Rejection> {
    tokio::task::yield_now().await;
    Ok(order + Lease::current().map_or(0, |lease| u64::from(lease.attempt())))
}

fn size<F>(future: &F) -> f64 {
    size_of_val(future) as f64
}

/// Measures the calls of `tracing` in a run, compared with the whole run. The subscriber accepts everything except this
/// crate's spans, so each span is checked and none is created.
async fn span(Rounds { rounds, operations, .. }: Rounds) -> Pair {
    let dispatch = tracing_core::Dispatch::new(Filtered);
    tracing_core::dispatcher::set_global_default(dispatch).expect("the only subscriber of this process");
    let executor = Executor::new(Arc::new(MemoryStore::new()));
    let key = Identity::new(Scene::Mq, "bench", "a key").key("idempotent").unwrap();
    let mut pairs = Vec::new();
    for round in 0..rounds {
        let start = Instant::now();
        for _ in 0..operations {
            idempotent_core::__private::trace(&Scene::Mq, "bench", std::hint::black_box(&key));
        }
        let value = nanos(start.elapsed(), operations);
        let start = Instant::now();
        for number in round * operations..(round + 1) * operations {
            run(executor.clone(), number).await;
        }
        let floor = nanos(start.elapsed(), operations);
        pairs.push((value, floor));
    }
    Pair::medians(&pairs)
}

struct Filtered;

impl Subscriber for Filtered {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target() == "idempotent" { Interest::never() } else { Interest::always() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() != "idempotent"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

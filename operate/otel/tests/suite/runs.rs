//! Outcomes of runs, and links from duplicates to the first run.
use std::time::Duration;

use idempotent_core::{Executor, Outcome, Policy, Rejection};
use idempotent_otel::RunTracer;
use idempotent_testkit::VirtualClock;
use opentelemetry::trace::Status;
use opentelemetry_sdk::trace::{Sampler, SpanData};
use tokio::sync::oneshot;
use tracing::level_filters::LevelFilter;

use crate::world::{Traces, attribute, executor, id, links, runs, store};

/// Returns traces, and an executor on a virtual clock whose runs are traced.
fn start(policy: Policy) -> (Traces, VirtualClock, Executor) {
    let (traces, clock) = (Traces::start(), VirtualClock::new());
    let executor = executor(store(&clock), &clock, policy, RunTracer::new());
    (traces, clock, executor)
}

/// Returns the span of the run inside of the application's span with this name.
fn run_in(traces: &Traces, name: &str) -> SpanData {
    let outer = traces.one(name);
    traces.all("idempotent").into_iter().find(|run| run.parent_span_id == id(&outer)).unwrap()
}

#[tokio::test]
async fn a_duplicate_links_to_the_run_that_consumed_its_key() {
    let (traces, _, executor) = start(Policy::new());
    assert_eq!(runs(&executor, "first", "k", async { Ok(1) }).await, Outcome::Ran);
    assert_eq!(runs(&executor, "other key", "l", async { Ok(1) }).await, Outcome::Ran);
    assert_eq!(runs(&executor, "second", "k", async { Ok(2) }).await, Outcome::Replayed);
    assert_eq!(runs(&executor, "third", "k", async { Ok(3) }).await, Outcome::Replayed);
    let first = run_in(&traces, "first");
    assert!(links(&first).is_empty() && links(&run_in(&traces, "other key")).is_empty());
    for name in ["second", "third"] {
        let duplicate = run_in(&traces, name);
        assert_eq!(links(&duplicate), [(id(&first), "first_run".to_owned())]);
        assert_eq!(duplicate.links[0].span_context.trace_id(), first.span_context.trace_id());
        assert_ne!(duplicate.span_context.trace_id(), first.span_context.trace_id(), "another request");
        assert_eq!(attribute(&duplicate, "idempotent.duplicate").unwrap(), "true");
        assert_eq!(duplicate.status, Status::Unset, "a duplicate is no error");
        let hash = |span| attribute(span, "idempotent.key_hash").unwrap();
        assert_eq!(hash(&duplicate), hash(&first));
    }
    assert_eq!(attribute(&first, "idempotent.scope").unwrap(), "orders");
    assert_eq!(attribute(&first, "idempotent.scene").unwrap(), "mq");
}

#[tokio::test]
async fn a_retry_replaces_the_failed_run_as_the_target_of_links() {
    let (traces, clock, executor) = start(Policy::new());
    let fails = async { Err(Rejection::LeaseLost) };
    assert!(matches!(runs(&executor, "fails", "k", fails).await, Outcome::Released { .. }));
    clock.advance(Duration::from_secs(3_600)).await;
    assert_eq!(runs(&executor, "retry", "k", async { Ok(1) }).await, Outcome::Ran);
    assert_eq!(runs(&executor, "duplicate", "k", async { Ok(1) }).await, Outcome::Replayed);
    let (failed, retry) = (run_in(&traces, "fails"), run_in(&traces, "retry"));
    assert_eq!(links(&run_in(&traces, "duplicate")), [(id(&retry), "first_run".to_owned())]);
    assert_eq!((failed.status, retry.status), (Status::error("released"), Status::Unset));
}

#[tokio::test]
async fn a_duplicate_of_a_run_in_flight_links_to_it() {
    let (traces, _, executor) = start(Policy::new());
    let (began, begins) = oneshot::channel();
    let (end, ends) = oneshot::channel::<()>();
    let slow = async move {
        began.send(()).unwrap();
        ends.await.unwrap();
        Ok(1)
    };
    let duplicate = async {
        begins.await.unwrap();
        let outcome = runs(&executor, "duplicate", "k", async { Ok(2) }).await;
        end.send(()).unwrap();
        outcome
    };
    let (first, second) = tokio::join!(runs(&executor, "first", "k", slow), duplicate);
    assert!(matches!((first, second), (Outcome::Ran, Outcome::InFlight { .. })));
    assert_eq!(links(&run_in(&traces, "duplicate")), [(id(&run_in(&traces, "first")), "first_run".to_owned())]);
}

#[tokio::test]
async fn a_delivery_of_a_dead_key_links_to_its_last_run() {
    let (traces, _, executor) = start(Policy::new().max_retries(0));
    let fails = async { Err(Rejection::LeaseLost) };
    assert!(matches!(runs(&executor, "last", "k", fails).await, Outcome::Dead { .. }));
    assert!(matches!(runs(&executor, "again", "k", async { Ok(1) }).await, Outcome::Dead { .. }));
    let again = run_in(&traces, "again");
    assert_eq!(links(&again), [(id(&run_in(&traces, "last")), "last_run".to_owned())]);
    assert_eq!(again.status, Status::error("dead"));
}

#[tokio::test]
async fn a_run_of_another_process_is_not_linked_and_a_stale_one_never() {
    let (traces, clock) = (Traces::start(), VirtualClock::new());
    let store = store(&clock);
    let one = executor(store.clone(), &clock, Policy::new(), RunTracer::new());
    let other = executor(store, &clock, Policy::new(), RunTracer::new());
    // The failed run of this process is the last one that it knows of.
    let _ = runs(&one, "failed here", "k", async { Err(Rejection::LeaseLost) }).await;
    clock.advance(Duration::from_secs(3_600)).await;
    assert_eq!(runs(&other, "ran there", "k", async { Ok(1) }).await, Outcome::Ran);
    assert_eq!(runs(&one, "duplicate here", "k", async { Ok(1) }).await, Outcome::Replayed);
    assert_eq!(runs(&other, "duplicate there", "k", async { Ok(1) }).await, Outcome::Replayed);
    let ran = run_in(&traces, "ran there");
    assert!(links(&run_in(&traces, "duplicate here")).is_empty());
    assert_eq!(links(&run_in(&traces, "duplicate there")), [(id(&ran), "first_run".to_owned())]);
}

#[tokio::test]
async fn the_number_of_recent_runs_is_limited() {
    let (traces, clock) = (Traces::start(), VirtualClock::new());
    let tracer = RunTracer::new().recent_runs(8);
    let executor = executor(store(&clock), &clock, Policy::new(), tracer);
    for number in 0..100 {
        assert_eq!(runs(&executor, "run", &number.to_string(), async { Ok(1) }).await, Outcome::Ran);
    }
    for number in 0..100 {
        assert_eq!(runs(&executor, "duplicate", &number.to_string(), async { Ok(1) }).await, Outcome::Replayed);
    }
    let linked = traces.all("idempotent").iter().filter(|span| !span.links.is_empty()).count();
    assert!((1..=8).contains(&linked), "{linked} of 100 duplicates are linked");
}

#[tokio::test]
async fn without_recent_runs_and_without_sampling_nothing_is_linked() {
    let clock = VirtualClock::new();
    let traces = Traces::start();
    let none = executor(store(&clock), &clock, Policy::new(), RunTracer::new().recent_runs(0));
    for name in ["first", "second"] {
        let _ = runs(&none, name, "k", async { Ok(1) }).await;
    }
    assert!(links(&run_in(&traces, "second")).is_empty());
    drop(traces);

    let tracer = RunTracer::new();
    let sampled = executor(store(&clock), &clock, Policy::new(), tracer);
    let off = Traces::with(LevelFilter::TRACE, Sampler::AlwaysOff);
    assert_eq!(runs(&sampled, "first", "k", async { Ok(1) }).await, Outcome::Ran);
    assert!(off.ended().is_empty());
    drop(off);
    let on = Traces::start();
    assert_eq!(runs(&sampled, "second", "k", async { Ok(1) }).await, Outcome::Replayed);
    assert!(links(&run_in(&on, "second")).is_empty(), "a link to a span that no exporter has seen");
}

#[tokio::test]
async fn a_takeover_links_to_the_previous_owner_and_a_duplicate_to_the_new_one() {
    let (traces, clock, executor) = start(Policy::new());
    let (began, begins) = oneshot::channel();
    let hangs = async move {
        began.send(()).unwrap();
        std::future::pending().await
    };
    tokio::select! {
        _ = runs(&executor, "dropped", "k", hangs) => panic!("it hangs"),
        begun = begins => begun.unwrap(),
    }
    clock.advance(Duration::from_secs(3_600)).await;
    assert_eq!(runs(&executor, "takes over", "k", async { Ok(1) }).await, Outcome::Ran);
    assert_eq!(runs(&executor, "duplicate", "k", async { Ok(1) }).await, Outcome::Replayed);
    let (dropped, owner) = (run_in(&traces, "dropped"), run_in(&traces, "takes over"));
    assert_eq!(attribute(&dropped, "idempotent.outcome").unwrap(), "abandoned");
    assert_eq!(links(&owner), [(id(&dropped), "previous_owner".to_owned())]);
    assert_eq!(links(&run_in(&traces, "duplicate")), [(id(&owner), "first_run".to_owned())]);
}

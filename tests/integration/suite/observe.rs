//! The calls of an observer, and the sums of the counters.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use crate::common::{End, Job, World, ms, secs};
use idempotent::observe::RunInfo;
use idempotent::{Event, Observer, Outcome, Policy, Tracing};
use idempotent_testkit::{FOREVER, StoreOperation};

on_both_stores! {
    each_delivery_ends_with_exactly_one_event
}

/// An observer that records its calls.
#[derive(Clone, Debug, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Observer for Notes {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        let note = match event {
            // Not the end of a delivery.
            Event::FoundConsumed { .. } => return,
            Event::Claimed { taken_over } => format!("claimed, over {}", taken_over.is_some()),
            Event::StoreFailed { step, error } => format!("{step}: {:?}", error.kind()),
            Event::LeaseLost => "lease lost".to_owned(),
            Event::RunsUnprotected => "unprotected".to_owned(),
            Event::ResultNotKept { reason } => format!("not kept: {reason}"),
            Event::Ended { outcome, .. } => format!("ended {} {:?}", outcome.name(), run.attempt),
            other => format!("{other:?}"),
        };
        self.0.lock().unwrap().push(note);
    }
}

async fn each_delivery_ends_with_exactly_one_event(world: World) {
    let notes = Notes::default();
    let worker = world.worker_by("a", Policy::new().lease(secs(2)).max_retries(1).max_result(2), |builder| {
        builder.observer((Tracing, notes.clone()))
    });
    let take = || std::mem::take(&mut *notes.0.lock().unwrap());
    let ok = Job::takes(ms(0));
    worker.outcome("ok", &ok).await;
    worker.outcome("ok", &ok).await;
    assert_eq!(take(), ["claimed, over false", "ended ran Some(1)", "ended replayed None"]);

    worker.store.fail_before(StoreOperation::Claim, 1);
    worker.store.fail_before(StoreOperation::Complete, 1);
    let run = worker.spawn("shaky", &ok).await;
    world.clock.advance(ms(100)).await;
    drop(run.await.unwrap());
    assert_eq!(take(), ["claim: NotApplied", "claimed, over false", "complete: NotApplied", "ended ran Some(1)"]);

    let err = Job::ends(ms(0), End::Err);
    worker.outcome("err", &err).await;
    worker.outcome("err", &err).await;
    assert_eq!(take(), ["claimed, over false", "ended released Some(1)", "claimed, over false", "ended dead Some(2)"]);

    worker.store.lose_request(StoreOperation::Renew, FOREVER);
    let run = worker.spawn("lost", &Job::takes(secs(60))).await;
    world.clock.advance(secs(2)).await;
    assert_eq!(run.await.unwrap().0, Outcome::LeaseLost);
    let told = take();
    assert_eq!(told.iter().filter(|note| note.starts_with("ended")).count(), 1, "{told:?}");
    assert!(told.contains(&"renew: Ambiguous".to_owned()) && told.contains(&"lease lost".to_owned()), "{told:?}");
    worker.store.heal();
    world.clock.advance(secs(1)).await;
    worker.outcome("lost", &ok).await;
    assert_eq!(take()[0], "claimed, over true");

    for _ in 0..10 {
        ok.runs.fetch_add(10, SeqCst); // the value grows to three digits
    }
    worker.outcome("large", &ok).await;
    assert_eq!(take()[1], "not kept: 3 bytes, max_result is 2");
    let counts = worker.executor.counts();
    assert_eq!(counts.deliveries(), counts.ended());
}

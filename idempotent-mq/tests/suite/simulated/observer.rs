//! Observers of deliveries.
use std::sync::{Arc, Mutex};

use idempotent_core::Policy;
use idempotent_mq::{DeliveryObserver, SettledDelivery, StartedDelivery};
use tracing::Span;

use crate::world::{Job, World, again_once, ms, secs};

/// An observer that records its calls, and returns a span if it has a name for one.
#[derive(Clone, Debug, Default)]
struct Recorder {
    calls: Arc<Mutex<Vec<String>>>,
    has_span: bool,
}

impl Recorder {
    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

impl DeliveryObserver for Recorder {
    fn settled(&self, delivery: &SettledDelivery<'_>) {
        let SettledDelivery { group, end, is_final, attempt, .. } = delivery;
        let text = format!("{group} {end} final={is_final} attempt={}", attempt.unwrap_or_default());
        self.calls.lock().unwrap().push(text);
    }

    fn span(&self, delivery: &StartedDelivery<'_>) -> Option<Span> {
        self.calls.lock().unwrap().push(format!("started runs={}", delivery.runs));
        self.has_span.then(Span::none)
    }
}

#[tokio::test]
async fn both_observers_of_a_pair_see_each_end_and_the_first_span_is_used() {
    let world = World::new();
    let job = Job::ends(&world, ms(10), again_once);
    let (first, second) = (Recorder::default(), Recorder::default());
    let third = Recorder { has_span: true, ..Recorder::default() };
    let fourth = Recorder::default();
    let all = ((first.clone(), second.clone()), (third.clone(), fourth.clone()));
    world.consume_by(Policy::new(), job.by_id(), |builder| builder.observer(all)).await;
    world.broker.send("m1", "{}");
    world.clock.advance(secs(10)).await;
    let ends = ["billing retried final=false attempt=1", "billing acked final=true attempt=2"];
    let started = "started runs=true";
    for asked in [&first, &second, &third] {
        assert_eq!(asked.calls(), [started, ends[0], started, ends[1]]);
    }
    assert_eq!(fourth.calls(), ends, "not asked for a span, since the third observer has one");
}

/// An observer that panics at every call.
#[derive(Debug)]
struct Panicking;

impl DeliveryObserver for Panicking {
    fn settled(&self, _: &SettledDelivery<'_>) {
        panic!("as told");
    }

    fn span(&self, _: &StartedDelivery<'_>) -> Option<Span> {
        panic!("as told");
    }
}

#[tokio::test]
async fn an_observer_that_panics_loses_no_count_and_hides_no_end_from_the_next_one() {
    let world = World::new();
    let job = Job::ends(&world, ms(10), again_once);
    let second = Recorder::default();
    let observers = (Panicking, second.clone());
    let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.observer(observers)).await;
    world.broker.send_all(&["m1", "m2"]);
    world.clock.advance(secs(10)).await;
    let counts = process.counts();
    assert_eq!((counts.received, counts.retried, counts.acked, counts.unsettled), (3, 1, 2, 0));
    assert_eq!(second.calls().len(), 3, "{:?}", second.calls());
}

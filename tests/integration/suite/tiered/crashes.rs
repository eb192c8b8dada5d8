//! The worker dies between any two steps of a success.
use idempotent::Outcome;
use idempotent::store::{MemoryTier, StateKind};
use idempotent_testkit::StoreOperation;

use crate::common::{Job, Worker, World, ms, secs};
use crate::tiered::unreliable_tiers::Gate;
use crate::tiered::{tier, worker};

on_both_stores! { killed_between_any_two_steps_of_a_success_the_end_is_the_same }

/// The point at which the worker stops until it is killed: in its fast tier, or in its durable store.
type Point = (&'static str, fn(MemoryTier) -> Gate, fn(&Worker), u32);

/// The steps of a success: the completion in the durable store, the read, the write to the fast tier, and the
/// settlement.
async fn killed_between_any_two_steps_of_a_success_the_end_is_the_same(world: World) {
    fn open(fast: MemoryTier) -> Gate {
        let gate = Gate::before(fast);
        gate.open();
        gate
    }
    let points: [Point; 5] = [
        ("before the durable store is told", open, |w| w.store.delay(StoreOperation::Complete, secs(3_600)), 2),
        ("before the durable store is heard", open, |w| w.store.hang(StoreOperation::Complete, 1), 1),
        ("before the record is read", open, |w| w.store.hang(StoreOperation::Peek, 1), 1),
        ("before the fast tier is told", Gate::before, |_| {}, 1),
        ("before the fast tier is heard", Gate::after, |_| {}, 1),
    ];
    for (point, gate, stop, runs) in points {
        let fast = tier(&world);
        let (one, _) = worker(&world, point, gate(fast.clone()));
        let (other, store) = worker(&world, "other", fast);
        stop(&one);
        let job = Job::takes(ms(10));
        let run = one.spawn(point, &job).await;
        world.clock.advance(ms(10)).await;
        assert!(!run.is_finished(), "{point}: it got past it");
        one.kill(run).await;
        world.clock.advance(secs(31)).await;

        let again = other.spawn(point, &job).await;
        world.clock.advance(ms(10)).await;
        let ended = if runs == 2 { Outcome::Ran } else { Outcome::Replayed };
        assert_eq!((again.await.unwrap().0, job.runs()), (ended, runs), "{point}");
        assert_eq!(world.record(point).await.unwrap().state.kind(), StateKind::Consumed, "{point}");
        let hits = store.counts().hits;
        assert_eq!(other.outcome(point, &job).await, Outcome::Replayed, "{point}");
        assert_eq!((store.counts().hits, job.runs()), (hits + 1, runs), "{point}: and the fast tier knows");
    }
}

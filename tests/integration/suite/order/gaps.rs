//! Numbers after a gap, duplicates of the last number, and the view of a stream that operators have.
use idempotent::ordering::StreamView;
use idempotent::{Clock, Store};
use idempotent_testkit::StoreOperation;

use super::sequence::{begin, comes, register};
use super::*;
use crate::common::{End, on_memory};

#[test]
fn a_number_after_a_gap_waits_for_a_call_whose_retry_is_due_later_than_its_patience() {
    on_memory(async |world| {
        let later = secs(600);
        let policy = Policy::new().on_broken_order(OnBrokenOrder::Skip(secs(60)));
        let worker = world.worker("a", policy.retry_delay(later).retry_delay_max(later));
        let (fails, job) = (Job::ends(ms(0), End::Err), Job::takes(ms(0)));
        // 2 is never sent.
        register(&worker, "ann", &[1, 2, 3]).await;
        assert!(matches!(comes(&worker, "ann", 1, &fails).await, Outcome::Released { .. }));
        for _ in 0..10 {
            assert_waiting(&comes(&worker, "ann", 3, &job).await);
            world.clock.advance(secs(20)).await;
        }
        world.clock.advance(later).await;
        assert_eq!(comes(&worker, "ann", 1, &job).await, Outcome::Ran);
        assert_eq!(comes(&worker, "ann", 3, &job).await, Outcome::Ran);
    });
}

#[test]
fn a_call_that_was_admitted_and_never_claimed_is_missing_from_the_end_of_its_admission() {
    on_memory(async |world| {
        let policy = Policy::new().lease(secs(30)).on_broken_order(OnBrokenOrder::Skip(secs(60)));
        let (killed, worker) = (world.worker("a", policy), world.worker("b", policy));
        let (began, job) = (world.clock.now(), Job::takes(ms(0)));
        // The claim does not reach the store.
        killed.store.delay(StoreOperation::Claim, secs(3_600));
        let first = begin(&killed, "ann", 1, &job).await;
        killed.kill(first).await;
        while world.clock.now() - began < secs(90) {
            assert_waiting(&comes(&worker, "ann", 2, &job).await);
            world.clock.advance(secs(10)).await;
        }
        assert_eq!(comes(&worker, "ann", 2, &job).await, Outcome::Ran);
    });
}

#[test]
fn a_duplicate_of_the_last_number_does_not_change_its_stream() {
    on_memory(async |world| {
        let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
        assert_eq!(comes(&worker, "ann", 1, &job).await, Outcome::Ran);
        let writes = world.asked(StoreOperation::CompareAndSwap).len();
        assert_eq!(comes(&worker, "ann", 1, &job).await, Outcome::Replayed);
        assert_eq!(world.asked(StoreOperation::CompareAndSwap).len(), writes);
    });
}

#[test]
fn a_number_that_waits_is_recorded_once_per_quarter_of_its_patience() {
    on_memory(async |world| {
        let policy = Policy::new().on_broken_order(OnBrokenOrder::Skip(secs(60)));
        let (worker, job) = (world.worker("a", policy), Job::takes(ms(0)));
        register(&worker, "ann", &[1]).await;
        let writes = || world.asked(StoreOperation::CompareAndSwap).len();
        assert_waiting(&comes(&worker, "ann", 2, &job).await);
        let before = writes();
        world.clock.advance(secs(14)).await;
        assert_waiting(&comes(&worker, "ann", 2, &job).await);
        assert_eq!(writes(), before);
        world.clock.advance(secs(1)).await;
        assert_waiting(&comes(&worker, "ann", 2, &job).await);
        assert_eq!(writes(), before + 1);
    });
}

#[test]
fn a_hint_is_at_most_half_of_the_patience() {
    on_memory(async |world| {
        let policy = Policy::new().on_broken_order(OnBrokenOrder::Skip(secs(6)));
        let (worker, job) = (world.worker("a", policy), Job::takes(ms(0)));
        let mut hints = Vec::new();
        for _ in 0..4 {
            hints.push(retry_after(&deliver(&worker, "2", "1", &job).await));
        }
        assert_eq!(hints, [secs(1), secs(2), secs(3), secs(3)]);
    });
}

#[test]
fn a_late_number_that_waits_does_not_change_its_stream() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let active = begin(&worker, "ann", 2, &Job::takes(secs(10))).await;
        let writes = world.asked(StoreOperation::CompareAndSwap).len();
        assert_waiting(&comes(&worker, "ann", 1, &Job::takes(ms(0))).await);
        assert_eq!(world.asked(StoreOperation::CompareAndSwap).len(), writes);
        world.clock.advance(secs(10)).await;
        assert_eq!(active.await.unwrap(), Outcome::Ran);
    });
}

#[test]
fn a_stream_is_loaded_with_the_time_of_the_store() {
    on_memory(async |world| {
        world.clock.advance(secs(60)).await;
        let stream = key_of("ann");
        let load = async || StreamView::load(world.store.capabilities().order.unwrap(), &stream).await.unwrap();
        let (absent, now) = load().await;
        assert!(absent.is_none() && now == world.clock.wall());
        register(&world.worker("a", Policy::new()), "ann", &[7]).await;
        let (view, now) = load().await;
        assert_eq!((view.unwrap().waiting.len(), now), (1, world.clock.wall()));
    });
}

//! The tier that answers a duplicate, and the cost.
use idempotent::store::Claim;
use idempotent::{Fingerprint, Outcome, Store};
use idempotent_testkit::StoreOperation;

use crate::common::{Job, World, assert_in_flight, ms, secs};
use crate::tiered::unreliable_tiers::{Mood, Weak};
use crate::tiered::{ask, assert_acquired, assert_consumed, done, held, tier, worker};

on_both_stores! {
    a_hit_asks_the_durable_store_nothing
    a_miss_is_answered_by_the_durable_store_and_repaired
    flushed_while_a_handler_runs_the_duplicate_is_retried_later
    a_key_in_flight_is_not_in_the_fast_tier
    another_payload_is_a_mismatch_on_a_hit
    a_fast_tier_that_is_down_costs_nothing_but_speed
    a_fast_tier_that_stalls_is_waited_for_no_longer_than_its_patience
    an_ambiguous_completion_tells_the_fast_tier_nothing
    a_lost_completion_tells_the_fast_tier_nothing
    the_first_result_is_what_the_fast_tier_learns
}

/// The fast tier knows the key, so the database is not queried.
async fn a_hit_asks_the_durable_store_nothing(world: World) {
    let fast = tier(&world);
    let (one, _) = worker(&world, "a", fast.clone());
    let (other, store) = worker(&world, "b", fast);
    let job = Job::takes(ms(0));
    assert_eq!(one.outcome("k", &job).await, Outcome::Ran);
    let asked = world.store.log().len();
    let (outcome, answer) = other.deliver("k", &job).await;
    assert_eq!((outcome, answer.unwrap(), job.runs()), (Outcome::Replayed, 1, 1));
    assert_eq!(world.store.log().len(), asked, "0 calls of the durable store");
    assert_eq!((store.counts().hits, store.counts().misses), (1, 0));
}

/// A key that only the durable store knows.
async fn a_miss_is_answered_by_the_durable_store_and_repaired(world: World) {
    let fast = tier(&world);
    let (worker, store) = worker(&world, "a", fast.clone());
    let job = Job::takes(ms(0));
    worker.outcome("k", &job).await;
    fast.flush();
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    let counts = store.counts();
    assert_eq!((counts.hits, counts.misses, counts.remembered, counts.repaired), (0, 2, 1, 1), "{counts:?}");
    let asked = world.store.log().len();
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!((world.store.log().len(), job.runs()), (asked, 1), "repaired: the next one is a hit");
}

/// The lease is the durable store's: FLUSHALL takes nothing of it.
async fn flushed_while_a_handler_runs_the_duplicate_is_retried_later(world: World) {
    let fast = tier(&world);
    let (one, _) = worker(&world, "a", fast.clone());
    let (other, _) = worker(&world, "b", fast.clone());
    let job = Job::takes(secs(5));
    let run = one.spawn("k", &job).await;
    fast.flush();
    assert_in_flight(&other.outcome("k", &job).await);
    world.clock.advance(secs(5)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    fast.flush();
    assert_eq!(other.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
}

/// Whatever the durable store answers but "consumed" is asked of it again.
async fn a_key_in_flight_is_not_in_the_fast_tier(world: World) {
    let fast = tier(&world);
    let (one, store) = worker(&world, "a", fast.clone());
    let job = Job::takes(secs(5));
    let run = one.spawn("k", &job).await;
    for _ in 0..3 {
        let asked = world.asked(StoreOperation::Claim).len();
        assert_in_flight(&one.outcome("k", &job).await);
        assert_eq!(world.asked(StoreOperation::Claim).len(), asked + 1);
    }
    one.kill(run).await;
    assert_eq!((store.counts().hits, store.counts().repaired, store.counts().remembered), (0, 0, 0));
    world.clock.advance(secs(30)).await;
    let (other, _) = worker(&world, "b", fast);
    let again = other.spawn("k", &job).await;
    world.clock.advance(secs(5)).await;
    assert_eq!((again.await.unwrap().0, job.runs()), (Outcome::Ran, 2), "the dead one's lease holds nobody up");
}

async fn another_payload_is_a_mismatch_on_a_hit(world: World) {
    let (worker, store) = worker(&world, "a", tier(&world));
    let with = |payload: &str, owner| {
        let fingerprint = Some(Fingerprint::of_bytes(payload));
        idempotent::store::ClaimRequest { fingerprint, ..ask("k", owner) }
    };
    assert_acquired(&store.claim(&with("a", 1)).await.unwrap());
    store.complete(&held("k", 1), &done(b"v", 3_600)).await.unwrap();
    let asked = worker.store.log().len();
    assert_eq!(store.claim(&with("b", 2)).await.unwrap(), Claim::Mismatch);
    assert_consumed(&store.claim(&with("a", 3)).await.unwrap(), b"v");
    assert_consumed(&store.claim(&ask("k", 4)).await.unwrap(), b"v");
    assert_eq!((store.counts().hits, worker.store.log().len()), (3, asked));
}

async fn a_fast_tier_that_is_down_costs_nothing_but_speed(world: World) {
    let fast = Weak::new(tier(&world), Mood::Down);
    let (worker, store) = worker(&world, "a", fast.clone());
    let job = Job::takes(ms(0));
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    let counts = store.counts();
    // Two look-ups and one write; the duplicate's fact is not offered to who has just not answered.
    assert_eq!((counts.misses, counts.failed, counts.repaired, counts.remembered), (2, 3, 0, 0), "{counts:?}");
    fast.becomes(Mood::Well);
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!((store.counts().hits, store.counts().repaired, job.runs()), (1, 1, 1));
}

async fn a_fast_tier_that_stalls_is_waited_for_no_longer_than_its_patience(world: World) {
    let fast = Weak::new(tier(&world), Mood::Stalls);
    let (one, _) = worker(&world, "a", fast.clone());
    let job = Job::takes(ms(0));
    let began = world.clock.elapsed();
    let run = one.spawn("k", &job).await;
    world.clock.advance(ms(99)).await;
    assert_eq!(job.runs(), 0);
    world.clock.advance(ms(1)).await;
    assert_eq!(job.runs(), 1);
    world.clock.advance(ms(99)).await;
    assert!(!run.is_finished(), "the fact of its completion is waited for");
    world.clock.advance(ms(1)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert_eq!(world.clock.elapsed() - began, ms(200));
}

async fn an_ambiguous_completion_tells_the_fast_tier_nothing(world: World) {
    let (worker, store) = worker(&world, "a", tier(&world));
    assert_acquired(&store.claim(&ask("k", 1)).await.unwrap());
    worker.store.lose_request(StoreOperation::Complete, 1);
    assert!(store.complete(&held("k", 1), &done(b"v", 3_600)).await.is_err());
    assert!(matches!(store.claim(&ask("k", 2)).await.unwrap(), Claim::InFlight(_)), "it was not applied");
    worker.store.lose_reply(StoreOperation::Complete, 1);
    assert!(store.complete(&held("k", 1), &done(b"v", 3_600)).await.is_err());
    assert_eq!(store.counts().remembered, 0);
    assert_consumed(&store.claim(&ask("k", 3)).await.unwrap(), b"v");
    assert_eq!((store.counts().hits, store.counts().repaired), (0, 1));
}

async fn a_lost_completion_tells_the_fast_tier_nothing(world: World) {
    let (_, store) = worker(&world, "a", tier(&world));
    assert_acquired(&store.claim(&ask("k", 1)).await.unwrap());
    world.clock.advance(secs(30)).await;
    assert_acquired(&store.claim(&ask("k", 2)).await.unwrap());
    let lost = store.complete(&held("k", 1), &done(b"late", 3_600)).await.unwrap();
    assert!(matches!(lost, idempotent::store::Settled::Lost { .. }), "{lost:?}");
    assert!(matches!(store.claim(&ask("k", 3)).await.unwrap(), Claim::InFlight(_)));
    assert_eq!(store.counts().remembered, 0);
}

/// Also where the second copy is what it hears of.
async fn the_first_result_is_what_the_fast_tier_learns(world: World) {
    let (worker, store) = worker(&world, "a", tier(&world));
    assert_acquired(&store.claim(&ask("k", 1)).await.unwrap());
    worker.store.complete(&held("k", 1), &done(b"first", 3_600)).await.unwrap();
    store.complete(&held("k", 1), &done(b"second", 3_600)).await.unwrap();
    assert_consumed(&store.claim(&ask("k", 2)).await.unwrap(), b"first");
    assert_eq!(store.counts().hits, 1);
}

//! The lifetime of cached facts.
use std::sync::Arc;

use idempotent::store::{CacheTier, CachedOutcome, MemoryTier};
use idempotent::{Clock, FencingToken, Store, Timestamp};
use idempotent_testkit::{StoreOperation, VirtualClock};

use crate::common::{World, key_of, ms, secs};
use crate::tiered::unreliable_tiers::Gate;
use crate::tiered::{ask, assert_acquired, assert_consumed, done, held, spawn_completion, tier, worker};

on_both_stores! {
    a_fact_does_not_outlive_the_retention
    a_repaired_fact_does_not_outlive_the_retention
    a_fact_read_slowly_does_not_outlive_the_retention
    a_fact_written_late_does_not_outlive_the_retention
    a_fact_is_believed_for_its_age_and_then_repaired
}

async fn a_fact_does_not_outlive_the_retention(world: World) {
    let (_, store) = worker(&world, "a", tier(&world));
    store.claim(&ask("k", 1)).await.unwrap();
    store.complete(&held("k", 1), &done(b"v", 10)).await.unwrap();
    world.clock.advance(ms(9_999)).await;
    assert_consumed(&store.claim(&ask("k", 2)).await.unwrap(), b"v");
    assert_eq!(store.counts().hits, 1);
    world.clock.advance(ms(1)).await;
    assert_acquired(&store.claim(&ask("k", 3)).await.unwrap());
}

async fn a_repaired_fact_does_not_outlive_the_retention(world: World) {
    let fast = tier(&world);
    let (_, store) = worker(&world, "a", fast.clone());
    store.claim(&ask("k", 1)).await.unwrap();
    store.complete(&held("k", 1), &done(b"v", 10)).await.unwrap();
    fast.flush();
    world.clock.advance(ms(9_500)).await;
    assert_consumed(&store.claim(&ask("k", 2)).await.unwrap(), b"v");
    world.clock.advance(ms(499)).await;
    assert_consumed(&store.claim(&ask("k", 3)).await.unwrap(), b"v");
    assert_eq!((store.counts().hits, store.counts().repaired), (1, 1));
    world.clock.advance(ms(1)).await;
    assert_acquired(&store.claim(&ask("k", 4)).await.unwrap());
}

/// The remaining time of a record decreases while the response is in transit.
async fn a_fact_read_slowly_does_not_outlive_the_retention(world: World) {
    let (slow, store) = worker(&world, "a", tier(&world));
    slow.store.delay_reply(StoreOperation::Peek, ms(50));
    store.claim(&ask("k", 1)).await.unwrap();
    let completing = spawn_completion(&store, 10);
    world.clock.settle().await;
    world.clock.advance(ms(9_999)).await;
    completing.await.unwrap();
    assert_consumed(&store.claim(&ask("k", 2)).await.unwrap(), b"v");
    assert_eq!((store.counts().remembered, store.counts().hits), (1, 1));
    world.clock.advance(ms(1)).await;
    assert_acquired(&store.claim(&ask("k", 3)).await.unwrap());
}

/// The server held the write up and counts its life from when it applied it.
async fn a_fact_written_late_does_not_outlive_the_retention(world: World) {
    let gate = Gate::before(tier(&world));
    let (_, store) = worker(&world, "a", gate.clone());
    store.claim(&ask("k", 1)).await.unwrap();
    let completing = spawn_completion(&store, 10);
    world.clock.settle().await;
    world.clock.advance(secs(9)).await;
    completing.await.unwrap();
    gate.open();
    world.clock.settle().await;
    assert!(gate.inner.recall(&key_of("k")).await.unwrap().is_some(), "it is there now");
    assert_consumed(&store.claim(&ask("k", 2)).await.unwrap(), b"v");
    assert_eq!(store.counts().hits, 1);
    world.clock.advance(secs(1)).await;
    assert!(gate.inner.recall(&key_of("k")).await.unwrap().is_some(), "it is there still");
    assert_acquired(&store.claim(&ask("k", 3)).await.unwrap());
}

async fn a_fact_is_believed_for_its_age_and_then_repaired(world: World) {
    let (_, store) = worker(&world, "a", tier(&world));
    store.claim(&ask("k", 1)).await.unwrap();
    store.complete(&held("k", 1), &done(b"v", 3_600)).await.unwrap();
    for (passed, hits, repaired) in [(59_999, 1, 0), (1, 1, 1), (59_999, 2, 1), (1, 2, 2)] {
        world.clock.advance(ms(passed)).await;
        assert_consumed(&store.claim(&ask("k", 2)).await.unwrap(), b"v");
        assert_eq!((store.counts().hits, store.counts().repaired), (hits, repaired));
    }
}

fn fact(value: &[u8]) -> CachedOutcome {
    CachedOutcome { fencing: FencingToken(1), fingerprint: None, value: Some(value.into()), until: Timestamp::FOREVER }
}

#[tokio::test]
async fn a_fact_replaces_neither_a_fact_nor_a_bar_until_their_time_is_over() {
    let clock = VirtualClock::new();
    let (fast, key) = (MemoryTier::holding(10, Arc::new(clock.clone())), key_of("k"));
    assert!(fast.remember(&key, &fact(b"1"), secs(2)).await.unwrap());
    assert!(!fast.remember(&key, &fact(b"2"), secs(2)).await.unwrap());
    fast.bar(&key, secs(3)).await.unwrap();
    assert_eq!(fast.recall(&key).await.unwrap(), None);
    assert!(!fast.remember(&key, &fact(b"2"), secs(2)).await.unwrap());
    clock.advance(secs(3)).await;
    assert!(fast.remember(&key, &fact(b"2"), secs(2)).await.unwrap());
    assert_eq!(fast.recall(&key).await.unwrap(), Some(fact(b"2")));
    clock.advance(secs(2)).await;
    assert_eq!(fast.recall(&key).await.unwrap(), None);
}

#[tokio::test]
async fn a_memory_tier_holds_the_newest_entries_up_to_its_limit() {
    let clock = VirtualClock::new();
    let fast = MemoryTier::holding(10, Arc::new(clock.clone()) as Arc<dyn Clock>);
    for n in 0..1_000 {
        assert!(fast.remember(&key_of(&n.to_string()), &fact(b"v"), secs(60)).await.unwrap());
    }
    let mut known = Vec::new();
    for n in 0..1_000 {
        if fast.recall(&key_of(&n.to_string())).await.unwrap().is_some() {
            known.push(n);
        }
    }
    assert!((5..=10).contains(&known.len()) && known.last() == Some(&999) && known[0] >= 990, "{known:?}");
}

#[tokio::test]
async fn a_memory_tier_refuses_an_entry_that_would_evict_all_others() {
    let fast = MemoryTier::new();
    assert!(fast.remember(&key_of("small"), &fact(b"v"), secs(60)).await.unwrap());
    assert!(!fast.remember(&key_of("huge"), &fact(&vec![0; (32 << 20) + 1]), secs(60)).await.unwrap());
    for n in 0..4 {
        assert!(fast.remember(&key_of(&n.to_string()), &fact(&vec![0; 20 << 20]), secs(60)).await.unwrap());
    }
    assert!(fast.recall(&key_of("small")).await.unwrap().is_none(), "80 MiB are more than it holds");
    assert!(fast.recall(&key_of("3")).await.unwrap().is_some());
}

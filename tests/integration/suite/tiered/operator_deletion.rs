//! Keys that an operator makes claimable again, without a return of cached facts.
use idempotent::store::{CacheTier, Claim, MemoryTier, Settled};
use idempotent::{FencingToken, Store, TieredStore};
use idempotent_testkit::StoreOperation;
use tokio::task::JoinHandle;

use crate::common::{World, key_of, ms, secs};
use crate::tiered::unreliable_tiers::{Gate, Mood, Weak};
use crate::tiered::{ask, assert_acquired, assert_consumed, done, held, spawn_completion, tier, worker};

on_both_stores! {
    a_forgotten_key_is_claimable_at_once
    a_fact_on_its_way_does_not_bring_a_forgotten_key_back
    a_fact_read_while_the_forgetting_was_under_way_does_not_bring_the_key_back
    a_key_claimed_again_before_the_record_is_read_stores_nothing_in_the_fast_tier
    a_key_that_was_not_deleted_is_known_again_after_a_while
    a_key_forgotten_while_the_fast_tier_was_down_is_answered_for_no_longer_than_its_age
    a_fact_on_its_way_past_a_flush_is_believed_no_longer_than_its_age
}

async fn consumed(store: &TieredStore) -> FencingToken {
    let Claim::Acquired(grant) = store.claim(&ask("k", 1)).await.unwrap() else { panic!("not acquired") };
    store.complete(&held("k", 1), &done(b"v", 3_600)).await.unwrap();
    grant.fencing
}

async fn forget(store: &TieredStore, fencing: FencingToken) -> Settled {
    store.capabilities().admin.unwrap().forget(&key_of("k"), fencing, false, secs(3_600)).await.unwrap()
}

/// A key that one process forgot while a fact of the other process was on its way to the fast tier.
struct Forgotten {
    fast: MemoryTier,
    one: TieredStore,
    gate: Gate,
    other: TieredStore,
    duplicate: JoinHandle<Claim>,
}

async fn forgotten_meanwhile(world: &World) -> Forgotten {
    let fast = tier(world);
    let (_, one) = worker(world, "a", fast.clone());
    let gate = Gate::before(fast.clone());
    let (_, other) = worker(world, "b", gate.clone());
    let fencing = consumed(&one).await;
    fast.flush();
    let duplicate = tokio::spawn({
        let other = other.clone();
        async move { other.claim(&ask("k", 2)).await.unwrap() }
    });
    world.clock.settle().await;
    assert_eq!(forget(&one, fencing).await, Settled::Done);
    Forgotten { fast, one, gate, other, duplicate }
}

async fn a_forgotten_key_is_claimable_at_once(world: World) {
    let fast = tier(&world);
    let (_, one) = worker(&world, "a", fast.clone());
    let (_, other) = worker(&world, "b", fast);
    let fencing = consumed(&one).await;
    assert_consumed(&other.claim(&ask("k", 2)).await.unwrap(), b"v");
    assert_eq!(forget(&one, fencing).await, Settled::Done);
    assert_acquired(&other.claim(&ask("k", 3)).await.unwrap());
}

/// The other process has read the record, and its write arrives after everything.
async fn a_fact_on_its_way_does_not_bring_a_forgotten_key_back(world: World) {
    let Forgotten { fast, gate, other, duplicate, .. } = forgotten_meanwhile(&world).await;
    // As late as anybody would believe it.
    world.clock.advance(ms(59_999)).await;
    gate.open();
    world.clock.settle().await;
    assert_consumed(&duplicate.await.unwrap(), b"v");
    assert_eq!(fast.recall(&key_of("k")).await.unwrap(), None, "it was barred");
    assert_acquired(&other.claim(&ask("k", 3)).await.unwrap());
}

/// The call is so slow that the first block has expired. The second block removes the facts that were stored
/// meanwhile.
async fn a_fact_read_while_the_forgetting_was_under_way_does_not_bring_the_key_back(world: World) {
    let fast = tier(&world);
    let (slow, one) = worker(&world, "a", fast.clone());
    let (_, other) = worker(&world, "b", fast);
    let fencing = consumed(&one).await;
    slow.store.delay(StoreOperation::Forget, secs(61));
    let forgetting = {
        let one = one.clone();
        tokio::spawn(async move { forget(&one, fencing).await })
    };
    world.clock.settle().await;
    world.clock.advance(secs(60)).await;
    assert_consumed(&other.claim(&ask("k", 2)).await.unwrap(), b"v");
    assert_eq!(other.counts().repaired, 1, "nothing bars it any more");
    world.clock.advance(secs(1)).await;
    assert_eq!(forgetting.await.unwrap(), Settled::Done);
    assert_acquired(&other.claim(&ask("k", 3)).await.unwrap());
}

/// The durable store confirmed the completion, and another worker claims the key before the read.
async fn a_key_claimed_again_before_the_record_is_read_stores_nothing_in_the_fast_tier(world: World) {
    let fast = tier(&world);
    let (slow, one) = worker(&world, "a", fast.clone());
    let (other, second) = worker(&world, "b", fast.clone());
    let Claim::Acquired(grant) = one.claim(&ask("k", 1)).await.unwrap() else { panic!("not acquired") };
    slow.store.delay(StoreOperation::Peek, ms(50));
    let completing = spawn_completion(&one, 3_600);
    world.clock.settle().await;
    let admin = other.store.capabilities().admin.unwrap();
    assert_eq!(admin.forget(&key_of("k"), grant.fencing, false, secs(60)).await.unwrap(), Settled::Done);
    assert_acquired(&second.claim(&ask("k", 2)).await.unwrap());
    world.clock.advance(ms(50)).await;
    assert_eq!(completing.await.unwrap(), Settled::Done);
    assert_eq!((one.counts().remembered, fast.recall(&key_of("k")).await.unwrap()), (0, None));
    assert!(matches!(second.claim(&ask("k", 3)).await.unwrap(), Claim::InFlight(_)));
}

/// A wrong fencing token forgets no record. The only cost is a query of the durable store for a while.
async fn a_key_that_was_not_deleted_is_known_again_after_a_while(world: World) {
    let (_, store) = worker(&world, "a", tier(&world));
    let fencing = consumed(&store).await;
    let wrong = forget(&store, FencingToken(fencing.0 - 1)).await;
    assert!(matches!(wrong, Settled::Lost { .. }), "{wrong:?}");
    for (passed, hits, repaired) in [(0, 0, 0), (60, 0, 1), (0, 1, 1)] {
        world.clock.advance(secs(passed)).await;
        assert_consumed(&store.claim(&ask("k", 2)).await.unwrap(), b"v");
        assert_eq!((store.counts().hits, store.counts().repaired), (hits, repaired));
    }
}

/// The bound that the docs name.
async fn a_key_forgotten_while_the_fast_tier_was_down_is_answered_for_no_longer_than_its_age(world: World) {
    let fast = Weak::new(tier(&world), Mood::Well);
    let (_, store) = worker(&world, "a", fast.clone());
    let fencing = consumed(&store).await;
    fast.becomes(Mood::Down);
    assert_eq!(forget(&store, fencing).await, Settled::Done, "a fast tier that is down fails no call");
    assert_eq!(store.counts().failed, 2);
    fast.becomes(Mood::Well);
    world.clock.advance(secs(59)).await;
    assert_consumed(&store.claim(&ask("k", 2)).await.unwrap(), b"v");
    world.clock.advance(secs(1)).await;
    assert_acquired(&store.claim(&ask("k", 3)).await.unwrap());
}

/// The other bound: the bars were emptied out as well.
async fn a_fact_on_its_way_past_a_flush_is_believed_no_longer_than_its_age(world: World) {
    let Forgotten { fast, one, gate, duplicate, .. } = forgotten_meanwhile(&world).await;
    fast.flush();
    world.clock.advance(secs(30)).await;
    drop(duplicate.await.unwrap());
    gate.open();
    world.clock.settle().await;
    world.clock.advance(secs(29)).await;
    assert_consumed(&one.claim(&ask("k", 3)).await.unwrap(), b"v");
    world.clock.advance(secs(1)).await;
    assert_acquired(&one.claim(&ask("k", 4)).await.unwrap());
}

//! The limit of a memory store, the removal of expired records, and the gauge of keys without an owner.
use std::sync::Arc;
use std::time::Duration;

use idempotent::store::{Claim, ClaimHandle, ClaimRequest, Completion, OwnerToken, Purge, orphans};
use idempotent::{Identity, MemoryStore, Scene, Store, StoreErrorKind};
use idempotent_testkit::VirtualClock;

use crate::common::{ask, key_of, secs};

const RECORDS: u32 = 100;

/// Creates a store with room for [`RECORDS`], and fills it with consumed keys that expire after a minute.
async fn full() -> (MemoryStore, VirtualClock) {
    let clock = VirtualClock::new();
    let limit = usize::try_from(RECORDS).unwrap();
    let store = MemoryStore::builder().clock(Arc::new(clock.clone())).max_entries(limit).build();
    assert!(store.is_empty());
    for number in 0..RECORDS {
        let request = ask(key_of(&number.to_string()), 1);
        let Claim::Acquired(grant) = store.claim(&request).await.unwrap() else { panic!("{number} is not free") };
        let held = ClaimHandle::granted(&request, &grant);
        store.complete(&held, &Completion { value: None, retain: secs(60) }).await.unwrap();
    }
    (store, clock)
}

#[tokio::test]
async fn a_full_store_refuses_new_keys_until_records_expire() {
    let (store, clock) = full().await;
    for number in 0..RECORDS {
        assert!(matches!(store.claim(&ask(key_of(&number.to_string()), 2)).await, Ok(Claim::Consumed(_))));
        let refused = store.claim(&ask(key_of(&format!("new {number}")), 2)).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::NotApplied);
        assert!(refused.to_string().contains("full with 100 records; raise max_entries"), "{refused}");
    }
    assert_eq!(store.len(), 100);
    clock.advance(secs(61)).await;
    for number in 0..RECORDS {
        let claimed = store.claim(&ask(key_of(&format!("new {number}")), 2)).await;
        assert!(matches!(claimed, Ok(Claim::Acquired(_))), "{number}: {claimed:?}");
    }
    assert_eq!((store.len(), store.is_empty()), (100, false));
}

#[tokio::test]
async fn a_purge_removes_at_most_the_given_number_of_expired_records() {
    let (store, clock) = full().await;
    assert_eq!(store.purge(1_000).await.unwrap(), 0);
    clock.advance(secs(61)).await;
    assert_eq!(store.purge(30).await.unwrap(), 30);
    assert_eq!((store.len(), store.purge(1_000).await.unwrap()), (70, 70));
    assert!(store.is_empty());
}

fn claim(part: &str, lease: Duration) -> ClaimRequest {
    ClaimRequest { lease, ..ask(Identity::new(Scene::Mq, "orphans", part).key("tests").unwrap(), 1) }
}

#[tokio::test]
async fn a_key_that_is_consuming_for_more_than_twice_its_lease_is_counted() {
    let clock = VirtualClock::new();
    let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
    assert_eq!(orphans(&store).await.unwrap(), Some(0));
    let (dead, renewed, done) = (claim("dead", secs(10)), claim("renewed", secs(10)), claim("done", secs(10)));
    for ask in [&dead, &renewed, &done, &claim("long", secs(60))] {
        store.claim(ask).await.unwrap();
    }
    let completion = Completion { value: None, retain: secs(3_600) };
    store.complete(&ClaimHandle::unanswered(done.key, done.owner), &completion).await.unwrap();
    clock.advance(secs(9)).await;
    store.renew(&ClaimHandle::unanswered(renewed.key, renewed.owner), secs(10)).await.unwrap();
    clock.advance(secs(10)).await;
    // Past its lease, and its message may just be on its way.
    assert_eq!(orphans(&store).await.unwrap(), Some(0));
    clock.advance(Duration::from_millis(1_001)).await;
    assert_eq!(orphans(&store).await.unwrap(), Some(1), "`dead`, more than twice its lease after it was claimed");
    clock.advance(secs(9)).await;
    assert_eq!(
        orphans(&store).await.unwrap(),
        Some(2),
        "and `renewed`, more than twice its lease after it was renewed"
    );
    store.claim(&ClaimRequest { owner: OwnerToken(2), ..dead }).await.unwrap();
    assert_eq!(orphans(&store).await.unwrap(), Some(1), "somebody has taken it over");
}

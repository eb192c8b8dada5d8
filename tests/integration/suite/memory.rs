//! The limit of a memory store, and the removal of expired records.
use std::sync::Arc;

use idempotent::store::{Claim, Completion, Purge};
use idempotent::{MemoryStore, Store, StoreErrorKind};
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
        let held = idempotent::store::ClaimHandle::granted(&request, &grant);
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

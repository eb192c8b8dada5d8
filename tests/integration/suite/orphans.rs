//! The gauge of keys without an owner.
use std::sync::Arc;
use std::time::Duration;

use idempotent::store::{ClaimHandle, ClaimRequest, Completion, OwnerToken, orphans};
use idempotent::{Identity, MemoryStore, Scene, Store};
use idempotent_testkit::VirtualClock;

use crate::common::{ask, secs};

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

//! A duplicate costs a read, and a key that is new one statement: the same for every server.
use idempotent_core::{Claim, ReleaseKind, Store};
use sqlx::pool::PoolOptions;

use super::fixture::{Db, Place, Store as ServerStore, creating, sent};
use crate::support::{done, held, key, release, request};

#[tokio::test]
async fn a_key_that_was_seen_lately_is_looked_at_and_not_claimed() {
    let place = Place::new();
    let pool = PoolOptions::<Db>::new().max_connections(1).connect_lazy(&place.url).unwrap();
    let store = creating(ServerStore::on_pool(pool.clone()).table(&place.table)).connect().await.unwrap();
    let counted = async || sent(&mut pool.acquire().await.unwrap(), &place).await;
    let consumed = async |store: &ServerStore, name: &str, owner| {
        let claim = store.claim(&request(&key(name), owner)).await.unwrap();
        assert!(matches!(claim, Claim::Consumed(_)), "{claim:?}");
    };
    for name in ["a", "b", "c"] {
        store.claim(&request(&key(name), 1)).await.unwrap();
    }
    assert_eq!(counted().await, (3, 0), "a new key is one statement");
    store.complete(&held(&key("a"), 1), &done(b"paid")).await.unwrap();
    store.release(&held(&key("b"), 1), &release(ReleaseKind::Delete)).await.unwrap();
    consumed(&store, "a", 2).await;
    assert!(matches!(store.claim(&request(&key("c"), 2)).await.unwrap(), Claim::InFlight(_)));
    assert_eq!(counted().await, (3, 2), "duplicates are reads");
    let again = store.claim(&request(&key("b"), 2)).await.unwrap();
    assert!(matches!(again, Claim::Acquired(_)), "{again:?}");
    assert_eq!(counted().await.0, 4, "a deleted key is claimed as a new one");

    // A process that has seen none of these keys, and only duplicates.
    let other = ServerStore::on_pool(pool.clone()).table(&place.table).connect().await.unwrap();
    for number in 0..20 {
        let name = format!("{number}");
        store.claim(&request(&key(&name), 1)).await.unwrap();
        store.complete(&held(&key(&name), 1), &done(b"paid")).await.unwrap();
    }
    let (claims, _) = counted().await;
    for number in 0..20 {
        consumed(&other, &format!("{number}"), 2).await;
    }
    assert_eq!(counted().await.0, claims + 8, "eight in a row are enough to know");
    let new = other.claim(&request(&key("new"), 2)).await.unwrap();
    assert!(matches!(new, Claim::Acquired(_)), "{new:?}");
}

//! Redis as the fast tier over SQLite.
use std::time::Duration;

use idempotent_core::{Admin, CacheTier, CachedOutcome, Claim, FencingToken, Settled, Store, TieredStore, Timestamp};
use idempotent_harness::servers::RedisServer;
use idempotent_sqlx::SqliteStore;

use crate::support::{HOUR, ask, done, granted, hold, key, open, start};

#[tokio::test]
async fn losing_redis_costs_only_speed() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let durable = SqliteStore::open(folder.path().join("durable.db").to_str().unwrap()).await.unwrap();
    let store = TieredStore::new(durable, open(&server).await.fast_tier());
    let held = hold(&store, "k", 1).await;
    server.kill();
    assert_eq!(store.complete(&held, &done(None)).await.unwrap(), Settled::Done);
    assert!(matches!(store.claim(&ask("k", 2)).await.unwrap(), Claim::Consumed(_)));
    granted(store.claim(&ask("other", 3)).await.unwrap());
    assert!(store.counts().failed > 0);
}

#[tokio::test]
async fn a_fact_replaces_neither_a_fact_nor_a_bar() {
    let (server, redis) = start().await;
    let tier = redis.fast_tier();
    let fact = |number| CachedOutcome {
        fencing: FencingToken(number),
        fingerprint: None,
        value: None,
        until: Timestamp(1 << 52),
    };
    assert_eq!(tier.recall(&key("k")).await.unwrap(), None);
    assert!(tier.remember(&key("k"), &fact(1), HOUR).await.unwrap());
    assert!(!tier.remember(&key("k"), &fact(2), HOUR).await.unwrap());
    assert_eq!(tier.recall(&key("k")).await.unwrap(), Some(fact(1)));
    tier.bar(&key("k"), Duration::from_secs(60)).await.unwrap();
    assert_eq!(tier.recall(&key("k")).await.unwrap(), None);
    assert!(!tier.remember(&key("k"), &fact(3), HOUR).await.unwrap());
    // As records, these values are foreign.
    let error = redis.claim(&ask("k", 1)).await.unwrap_err();
    assert!(error.to_string().contains("the fact of a tiered store"), "{error}");
    assert!(redis.forget(&key("k"), FencingToken(1), true, HOUR).await.is_err());
    server.command(&["SET", key("j").as_str(), "consuming"]);
    assert!(tier.recall(&key("j")).await.unwrap_err().to_string().contains("not written by a tiered store"));
}

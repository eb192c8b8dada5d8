//! Redis as the fast tier over SQLite.
use crate::support;

use std::time::Duration;

use idempotent_core::{Admin, CacheTier, CachedOutcome, Claim, FencingToken, Settled, Store, TieredStore, Timestamp};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use idempotent_sqlx::SqliteStore;

use crate::support::{HOUR, ask, consume, granted, hold, key, open};

async fn tiers(server: &RedisServer) -> (tempfile::TempDir, SqliteStore, RedisStore, TieredStore) {
    let folder = tempfile::tempdir().unwrap();
    let durable = SqliteStore::open(folder.path().join("durable.db").to_str().unwrap()).await.unwrap();
    let redis = open(server).await;
    let store = TieredStore::new(durable.clone(), redis.fast_tier());
    (folder, durable, redis, store)
}

#[tokio::test]
async fn a_hit_in_redis_skips_the_database_and_a_miss_repairs_redis() {
    let server = RedisServer::start();
    let (_folder, _durable, _redis, store) = tiers(&server).await;
    consume(&store, "k", Some(b"result")).await;
    let hit = |claim: &Claim| matches!(claim, Claim::Consumed(c) if c.value.as_deref() == Some(b"result"));
    assert!(hit(&store.claim(&ask("k", 2)).await.unwrap()));
    assert_eq!((store.counts().hits, store.counts().repaired), (1, 0));
    server.command(&["FLUSHALL"]);
    assert!(hit(&store.claim(&ask("k", 3)).await.unwrap()), "the database knows");
    assert_eq!((store.counts().hits, store.counts().repaired), (1, 1));
    assert!(hit(&store.claim(&ask("k", 4)).await.unwrap()));
    assert_eq!((store.counts().hits, store.counts().repaired), (2, 1));
}

#[tokio::test]
async fn flushing_redis_during_a_run_does_not_start_a_second_run() {
    let server = RedisServer::start();
    let (_folder, _durable, _redis, store) = tiers(&server).await;
    let held = hold(&store, "k", 1).await;
    server.command(&["FLUSHALL"]);
    assert!(matches!(store.claim(&ask("k", 2)).await.unwrap(), Claim::InFlight(_)));
    assert_eq!(store.complete(&held, &support::done(None)).await.unwrap(), Settled::Done);
    assert!(matches!(store.claim(&ask("k", 2)).await.unwrap(), Claim::Consumed(_)));
}

#[tokio::test]
async fn losing_redis_costs_only_speed() {
    let server = RedisServer::start();
    let (_folder, _durable, _redis, store) = tiers(&server).await;
    let held = hold(&store, "k", 1).await;
    server.kill();
    assert_eq!(store.complete(&held, &support::done(None)).await.unwrap(), Settled::Done);
    assert!(matches!(store.claim(&ask("k", 2)).await.unwrap(), Claim::Consumed(_)));
    granted(store.claim(&ask("other", 3)).await.unwrap());
    assert!(store.counts().failed > 0);
}

#[tokio::test]
async fn a_forgotten_key_is_claimable_over_both_tiers() {
    let server = RedisServer::start();
    let (_folder, _durable, _redis, store) = tiers(&server).await;
    let fencing = consume(&store, "k", None).await;
    let admin = store.capabilities().admin.unwrap();
    assert_eq!(admin.forget(&key("k"), fencing, false, HOUR).await.unwrap(), Settled::Done);
    assert!(granted(store.claim(&ask("k", 2)).await.unwrap()).fencing > fencing);
}

#[tokio::test]
async fn a_fact_replaces_neither_a_fact_nor_a_bar() {
    let server = RedisServer::start();
    let redis = open(&server).await;
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

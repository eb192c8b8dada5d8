//! The primary that sentinels report.
use std::sync::Arc;

use idempotent_core::{StateKind, StoreErrorKind};
use idempotent_harness::servers::{RedisReplicas, RedisSentinels, RedisServer};
use idempotent_redis::RedisStore;

use crate::support::fake_server::Fake;
use crate::topology::{ask, blocking, claim, granted, key, state, without_cache};

#[tokio::test]
async fn one_reachable_sentinel_is_enough_and_reports_the_others() {
    let group = RedisSentinels::start();
    group.sentinels()[0].pause();
    group.sentinels()[1].kill();
    let store = without_cache(group.url()).await;
    granted(claim(&store, &ask(key("a", 1), 1)).await);
    // Uses only the third sentinel. The first one, which the third has reported, is then the only one left.
    let third = format!("redis+sentinel://{}/mymaster", group.sentinels()[2].address());
    let other = without_cache(third).await;
    group.sentinels()[0].resume();
    group.sentinels()[2].kill();
    group.current_primary().command(&["CLIENT", "KILL", "TYPE", "normal"]);
    group.current_primary().command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    granted(claim(&other, &ask(key("a", 2), 1)).await);
}

#[tokio::test]
async fn an_unknown_primary_name_is_reported() {
    let group = RedisSentinels::start();
    let error = RedisStore::connect(group.url().replace("mymaster", "others")).await.unwrap_err();
    assert!(error.to_string().contains("knows no primary \"others\""), "{error}");
}

#[tokio::test]
async fn sentinels_that_require_a_password_name_the_builder_method() {
    let group = RedisSentinels::start();
    for sentinel in group.sentinels() {
        sentinel.command(&["ACL", "SETUSER", "default", "resetpass", ">hunter2"]);
    }
    let error = RedisStore::connect(group.url()).await.unwrap_err();
    assert!(error.to_string().contains("`RedisStoreBuilder::sentinel_credentials`"), "{error}");
    let store = RedisStore::builder(group.url()).sentinel_credentials(None, "hunter2").connect().await.unwrap();
    granted(claim(&store, &ask(key("a", 1), 1)).await);
}

#[tokio::test]
async fn a_reported_server_is_not_used_before_it_is_a_primary() {
    let group = RedisReplicas::start(1);
    let sentinel = Fake::sentinel(group.replica().port(), 1).await;
    let url = format!("redis+sentinel://{}/main", sentinel.address());
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied);
    assert!(error.to_string().contains("not a primary"), "{error}");
    group.replica().command(&["REPLICAOF", "NO", "ONE"]);
    granted(claim(&without_cache(url).await, &ask(key("a", 1), 1)).await);
}

#[tokio::test]
async fn an_outdated_sentinel_is_not_believed() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let (knows, behind) = (Fake::sentinel(new.port(), 2).await, Fake::sentinel(old.port(), 1).await);
    let store = without_cache(format!("redis+sentinel://{},{}/main", knows.address(), behind.address())).await;
    granted(claim(&store, &ask(key("a", 1), 1)).await);
    // From now on the other sentinel is faster.
    knows.hesitate(500);
    new.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    new.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    granted(claim(&store, &ask(key("a", 2), 1)).await);
    let has = |server: &RedisServer| server.command(&["EXISTS", key("a", 2).as_str()]).integer();
    assert_eq!((has(&new), has(&old)), (Some(1), Some(0)));
}

/// The old primary pauses, is replaced, and resumes in the belief that it is the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_even_an_idle_store_writes_nothing_to_the_old_primary() {
    let group = Arc::new(RedisSentinels::start());
    let (busy, idle) = (without_cache(group.url()).await, without_cache(group.url()).await);
    granted(claim(&busy, &ask(key("a", 1), 1)).await);
    granted(claim(&idle, &ask(key("a", 2), 1)).await);
    group.primary().pause();
    // The call waits for the new primary.
    granted(claim(&busy, &ask(key("a", 3), 1)).await);
    let seen = group.clone();
    blocking(move || seen.wait_for_failover(seen.primary()).port()).await;
    group.primary().resume();
    granted(claim(&idle, &ask(key("a", 4), 1)).await);
    for number in [3, 4] {
        let found = group.replica().command(&["EXISTS", key("a", number).as_str()]);
        assert_eq!(found.integer(), Some(1), "{number} is not on the new primary");
        assert_ne!(state(&busy, &key("a", number)).await, StateKind::Absent);
    }
    assert_eq!(group.primary().command(&["EXISTS", key("a", 4).as_str()]).integer(), Some(0));
}

//! The primary that sentinels report, announced switches, and outdated sentinels.
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use idempotent_core::{Batch, Claim, ClaimRequest, StateKind, Store, StoreErrorKind};
use idempotent_harness::servers::{RedisReplicas, RedisSentinels, RedisServer};
use idempotent_redis::RedisStore;

use crate::support::ask_number;
use crate::support::fake_server::Fake;
use crate::topology::{ask, blocking, claim, granted, key, state, until, without_cache};

/// Returns the URL of the primary that these sentinels report.
fn sentinels(fakes: &[&Fake]) -> String {
    let addresses: Vec<_> = fakes.iter().map(|fake| fake.address()).collect();
    format!("redis+sentinel://{}/main", addresses.join(","))
}

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
    let url = sentinels(&[&sentinel]);
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
    let store = without_cache(sentinels(&[&knows, &behind])).await;
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

/// `accept` must not record the primary reported by then for a connection to another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_announced_while_connecting_to_the_old_primary_is_obeyed() {
    let (old, new) = (Fake::start().await, Fake::start().await);
    let sentinel = Fake::sentinel(old.port, 1).await;
    let store = without_cache(sentinels(&[&sentinel])).await;
    // The connection breaks, and the next one takes its time to report its role.
    old.says.holds_role.store(true, Ordering::SeqCst);
    let roles = old.says.role_asked.load(Ordering::SeqCst);
    old.cuts_all();
    let claiming = store.clone();
    let claim = tokio::spawn(async move {
        loop {
            if let Ok(claim) = claiming.claim(&ask_number(1, 1)).await {
                return claim;
            }
        }
    });
    until("it asks the old one's role", async || old.says.role_asked.load(Ordering::SeqCst) > roles).await;
    let before = old.scripts();
    sentinel.names(new.port, 2);
    sentinel.tells_of_switch(&old, &new);
    tokio::time::sleep(Duration::from_millis(500)).await;
    old.says.holds_role.store(false, Ordering::SeqCst);
    old.says.role_said.notify_one();
    granted(Ok(tokio::time::timeout(Duration::from_secs(30), claim).await.unwrap().unwrap()));
    assert_eq!(
        old.scripts() - before,
        0,
        "half a second after the sentinel told of the switch the old one was written to"
    );
    // The switch must close the connection, because no other event closes it.
}

/// An announcement must raise the epoch, or an outdated sentinel passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_missed_an_announced_switch_is_not_believed() {
    let (old, new) = (Fake::start().await, Fake::start().await);
    let (knows, behind) = (Fake::sentinel(old.port, 1).await, Fake::sentinel(old.port, 1).await);
    let store = without_cache(sentinels(&[&knows, &behind])).await;
    let before = (old.scripts(), new.scripts());
    knows.names(new.port, 2);
    // Busy with the failover, or farther away than the other one.
    knows.hesitate(300);
    knows.tells_of_switch(&old, &new);
    tokio::time::sleep(Duration::from_millis(500)).await;
    granted(store.claim(&ask_number(1, 1)).await);
    assert_eq!((old.scripts() - before.0, new.scripts() - before.1), (0, 1), "(old, new)");
}

/// Sentinels that were set up again start with epoch 0. Another known sentinel does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_with_reset_epochs_are_believed_eventually() {
    let primary = Fake::start().await;
    let (one, other) = (Fake::sentinel(primary.port, 5).await, Fake::sentinel(primary.port, 5).await);
    let patience = Duration::from_millis(500);
    let store =
        RedisStore::builder(sentinels(&[&one, &other])).cache(None).connect_timeout(patience).connect().await.unwrap();
    one.names(primary.port, 0);
    other.hesitate(600_000);
    primary.cuts_all();
    let claims = async {
        while store.claim(&ask_number(1, 1)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(20), claims).await;
    assert!(ended.is_ok(), "a sentinel answers at once, and so does the primary that it names");
}

/// Each call of a batch looks for the primary. The connection opened by one call serves the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_was_sent_to_a_former_primary_makes_one_connection_to_the_new_one() {
    let (old, new) = (Fake::start().await, Fake::start().await);
    let sentinel = Fake::sentinel(old.port, 1).await;
    let store = without_cache(sentinels(&[&sentinel])).await;
    old.says.is_replica.store(true, Ordering::SeqCst);
    sentinel.names(new.port, 2);
    // Different leases need a script call each.
    let lease = |at: u64| Duration::from_secs(60 + at);
    let requests: Vec<_> = (0..8).map(|at| ClaimRequest { lease: lease(at), ..ask_number(at.into(), 1) }).collect();
    let claims = store.claim_all(&requests).await;
    assert!(claims.iter().all(|claim| matches!(claim, Ok(Claim::Acquired(_)))), "{claims:?}");
    assert_eq!(new.says.connections.lock().unwrap().len(), 1);
}

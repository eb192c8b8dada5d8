//! Announced switches, and outdated sentinels.
use std::sync::atomic::Ordering;
use std::time::Duration;

use idempotent_core::{Claim, ClaimRequest, Store};
use idempotent_redis::RedisStore;

use crate::support::ask_number;
use crate::support::fake_server::Fake;
use crate::support::until;

/// `accept` must not record the primary reported by then for a connection to another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_announced_while_connecting_to_the_old_primary_is_obeyed() {
    let (old, new) = (Fake::start().await, Fake::start().await);
    let sentinel = Fake::sentinel(old.port, 1).await;
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let store = RedisStore::builder(url).cache(None).connect().await.unwrap();
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
    let claim = tokio::time::timeout(Duration::from_secs(30), claim).await.unwrap().unwrap();
    assert!(matches!(claim, Claim::Acquired(_)), "{claim:?}");
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
    let url = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/main", knows.port, behind.port);
    let store = RedisStore::builder(url).cache(None).connect().await.unwrap();
    let before = (old.scripts(), new.scripts());
    knows.names(new.port, 2);
    // Busy with the failover, or farther away than the other one.
    knows.hesitate(300);
    knows.tells_of_switch(&old, &new);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let claim = store.claim(&ask_number(1, 1)).await;
    assert!(matches!(claim, Ok(Claim::Acquired(_))), "{claim:?}");
    assert_eq!((old.scripts() - before.0, new.scripts() - before.1), (0, 1), "(old, new)");
}

/// Sentinels that were set up again start with epoch 0. Another known sentinel does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_with_reset_epochs_are_believed_eventually() {
    let primary = Fake::start().await;
    let (one, other) = (Fake::sentinel(primary.port, 5).await, Fake::sentinel(primary.port, 5).await);
    let url = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/main", one.port, other.port);
    let patience = Duration::from_millis(500);
    let store = RedisStore::builder(url).cache(None).connect_timeout(patience).connect().await.unwrap();
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
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let store = RedisStore::builder(url).cache(None).connect().await.unwrap();
    old.says.is_replica.store(true, Ordering::SeqCst);
    sentinel.names(new.port, 2);
    // Different leases need a script call each.
    let lease = |at: u64| Duration::from_secs(60 + at);
    let requests: Vec<_> = (0..8).map(|at| ClaimRequest { lease: lease(at), ..ask_number(at.into(), 1) }).collect();
    let claims = store.capabilities().batch.unwrap().claim_all(&requests).await;
    assert!(claims.iter().all(|claim| matches!(claim, Ok(Claim::Acquired(_)))), "{claims:?}");
    assert_eq!(new.says.connections.lock().unwrap().len(), 1);
}

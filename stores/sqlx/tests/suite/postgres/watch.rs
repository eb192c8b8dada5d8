//! Notifications of waiting callers, without cost for other calls.
use std::time::Duration;

use idempotent_core::{Claim, Key, ReleaseKind, Settled, Store, Watching};
use idempotent_harness::servers::PostgresServer;
use idempotent_sqlx::PostgresStore;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgListener;
use tokio::task::JoinHandle;

use crate::postgres::dialect::lock_of;
use crate::postgres::fixture::{Place, creating, server};
use crate::support::{done, held, key, release, request};

fn watch(store: &PostgresStore, key: &Key) -> Watching {
    store.capabilities().watch.unwrap().watch(key)
}

/// Waits until the condition holds. The time limit of the test ends the wait.
async fn until(mut so: impl FnMut() -> bool) {
    while !so() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Locks by which waiters of a table leave word.
fn words(server: &PostgresServer, salt: u64) -> usize {
    let space = salt as u32;
    let text = format!("SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND objsubid=2 AND classid={space}");
    server.psql("postgres", &text).parse().unwrap()
}

fn listeners(server: &PostgresServer) -> String {
    server.psql("postgres", "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idempotent listener'")
}

async fn ends(within: &str, task: JoinHandle<()>) {
    tokio::time::timeout(Duration::from_secs(60), task).await.expect(within).unwrap();
}

#[tokio::test]
async fn one_notification_is_sent_for_each_key_with_waiting_callers_and_none_for_others() {
    let place = Place::new();
    let (store, other) = (place.open().await, place.open().await);
    let channel = format!("idempotent_{:016x}", place.salt());
    let mut told = PgListener::connect(&place.url).await.unwrap();
    told.listen(&channel).await.unwrap();
    for (n, verdict) in [None, Some(ReleaseKind::Delete), Some(ReleaseKind::Vacate), Some(ReleaseKind::MarkDead)]
        .into_iter()
        .enumerate()
    {
        for waited_for in [false, true] {
            let key = key(&format!("{n} {waited_for}"));
            store.claim(&request(&key, 1)).await.unwrap();
            let waiting = waited_for.then(|| tokio::spawn(watch(&other, &key)));
            until(|| words(server(), place.salt()) == usize::from(waited_for)).await;
            let settled = match verdict {
                None => store.complete(&held(&key, 1), &done(b"paid")).await,
                Some(verdict) => store.release(&held(&key, 1), &release(verdict)).await,
            };
            assert_eq!(settled.unwrap(), Settled::Done);
            // PostgreSQL delivers earlier notifications first.
            sqlx::query("SELECT pg_notify($1, 'end')").bind(&channel).execute(&place.other()).await.unwrap();
            let mut heard = Vec::new();
            while heard.last().is_none_or(|last| last != "end") {
                heard.push(told.recv().await.unwrap().payload().to_owned());
            }
            let expected = waited_for.then(|| format!("{:032x}", key.hash()));
            assert_eq!(heard, Vec::from_iter(expected.into_iter().chain(["end".to_owned()])), "{verdict:?}");
            if let Some(waiting) = waiting {
                ends("who waited is woken", waiting).await;
            }
            until(|| words(server(), place.salt()) == 0).await;
        }
    }
}

#[tokio::test]
async fn a_batch_notifies_the_callers_that_wait_for_one_of_its_keys() {
    let place = Place::new();
    let (store, other) = (place.open().await, place.open().await);
    let keys: Vec<Key> = (0..20).map(|n| key(&n.to_string())).collect();
    let asks: Vec<_> = keys.iter().map(|key| request(key, 1)).collect();
    let batch = store.capabilities().batch.unwrap();
    assert!(batch.claim_all(&asks).await.iter().all(|claim| matches!(claim, Ok(Claim::Acquired(_)))));
    let waiting = [3, 17].map(|n: usize| tokio::spawn(watch(&other, &keys[n])));
    until(|| words(server(), place.salt()) == 2).await;
    let all: Vec<_> = keys.iter().map(|key| (held(key, 1), done(b"paid"))).collect();
    assert!(batch.complete_all(&all).await.iter().all(|settled| matches!(settled, Ok(Settled::Done))));
    for task in waiting {
        ends("who waited is woken", task).await;
    }
}

#[tokio::test]
async fn the_listener_comes_with_the_first_waiter_and_goes_with_the_last() {
    let server = PostgresServer::start();
    let store = creating(PostgresStore::builder(server.url())).connect().await.unwrap();
    let keys = ["a", "b"].map(key);
    for key in &keys {
        store.claim(&request(key, 1)).await.unwrap();
    }
    assert_eq!(listeners(&server), "0");
    let mut waiting = keys.each_ref().map(|key| tokio::spawn(watch(&store, key)));
    until(|| words_of_all(&server) == "2").await;
    assert_eq!(listeners(&server), "1");
    waiting[0].abort();
    until(|| words_of_all(&server) == "1").await;
    waiting[1].abort();
    until(|| listeners(&server) == "0").await;
    // And again.
    waiting[0] = tokio::spawn(watch(&store, &keys[0]));
    until(|| words_of_all(&server) == "1").await;
    store.complete(&held(&keys[0], 1), &done(b"paid")).await.unwrap();
    let [first, _] = waiting;
    ends("who waited is woken", first).await;
}

#[tokio::test]
async fn a_caller_that_waits_for_a_key_that_an_operator_removes_is_notified() {
    let place = Place::new();
    let (store, other) = (place.open().await, place.open().await);
    let key = key("a");
    let Claim::Acquired(grant) = store.claim(&request(&key, 1)).await.unwrap() else { panic!("it is free") };
    let mut told = PgListener::connect(&place.url).await.unwrap();
    told.listen(&format!("idempotent_{:016x}", place.salt())).await.unwrap();
    let waiting = tokio::spawn(watch(&other, &key));
    until(|| words(server(), place.salt()) == 1).await;
    let forgotten = store.capabilities().admin.unwrap().forget(&key, grant.fencing, true, Duration::ZERO).await;
    assert_eq!(forgotten.unwrap(), Settled::Done);
    assert_eq!(told.recv().await.unwrap().payload(), format!("{:032x}", key.hash()));
    ends("who waited is woken", waiting).await;
}

fn words_of_all(server: &PostgresServer) -> String {
    server.psql("postgres", "SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND objsubid=2")
}

#[tokio::test]
async fn a_listener_that_is_cut_off_wakes_all_and_the_next_waiter_makes_another() {
    let server = PostgresServer::start();
    let store = creating(PostgresStore::builder(server.url())).connect().await.unwrap();
    let keys = ["a", "b"].map(key);
    for key in &keys {
        store.claim(&request(key, 1)).await.unwrap();
    }
    for round in 0..2 {
        let waiting = keys.each_ref().map(|key| tokio::spawn(watch(&store, key)));
        until(|| words_of_all(&server) == "2").await;
        server.psql(
            "postgres",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'idempotent listener'",
        );
        for task in waiting {
            // Both keys are held as before: nothing but the loss can have woken them.
            ends(&format!("round {round}: who may have missed a word looks again"), task).await;
        }
    }
    let waiting = tokio::spawn(watch(&store, &keys[0]));
    until(|| words_of_all(&server) == "1").await;
    store.complete(&held(&keys[0], 1), &done(b"paid")).await.unwrap();
    ends("who waited is woken", waiting).await;
}

#[tokio::test]
async fn a_caller_without_notifications_polls() {
    let place = Place::new();
    let store = place.open().await;
    let role = format!("single_{}", place.table);
    server().psql(
        "postgres",
        &format!(
            "CREATE ROLE {role} LOGIN CONNECTION LIMIT 1; GRANT ALL ON {0}, {0}_migrations TO {role}",
            place.table
        ),
    );
    // Its one connection is the pool's: none is left to listen.
    let url = place.url.replace("postgres@", &format!("{role}@"));
    let other = PostgresStore::builder(url).table(&place.table).connections(1).connect().await.unwrap();
    let key = key("a");
    store.claim(&request(&key, 1)).await.unwrap();
    assert!(other.peek(&key).await.unwrap().is_some());
    let mut waiting = watch(&other, &key);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "it is held");
    assert_eq!(words(server(), place.salt()), 0);
    store.complete(&held(&key, 1), &done(b"paid")).await.unwrap();
    ends("who looks finds out", tokio::spawn(waiting)).await;
}

#[tokio::test]
async fn a_caller_that_arrives_while_the_key_is_settled_is_notified() {
    let place = Place::new();
    let store = place.open().await;
    let key = key("a");
    store.claim(&request(&key, 1)).await.unwrap();
    let other = place.other();
    let mut settling = other.begin().await.unwrap();
    // The state of a completion that waits for the disk: the lock of the key, and an uncommitted row.
    let (space, number) = (place.salt() as u32 as i32, key.hash() as u32 as i32);
    let steps = format!(
        "SELECT pg_advisory_xact_lock({space},{number}); UPDATE {} SET state = 2, updated_at = updated_at + 1",
        place.table
    );
    sqlx::raw_sql(AssertSqlSafe(steps)).execute(&mut *settling).await.unwrap();
    let mut waiting = watch(&store, &key);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "nothing is committed");
    assert_eq!(words(server(), place.salt()), 1, "no word was left beside the lock of who settles");
    settling.commit().await.unwrap();
    ends("who looks finds out", tokio::spawn(waiting)).await;
}

#[tokio::test]
async fn callers_that_look_at_the_same_moment_do_not_take_each_other_for_a_run() {
    let place = Place::new();
    let (store, key) = (place.open().await, key("a"));
    let mut looking = place.other().begin().await.unwrap();
    let look = format!("SELECT pg_advisory_xact_lock_shared({})", lock_of(&place, &key));
    sqlx::query(AssertSqlSafe(look)).execute(&mut *looking).await.unwrap();
    ends("nobody has the key", tokio::spawn(watch(&store, &key))).await;
    looking.rollback().await.unwrap();
}

#[tokio::test]
async fn a_store_without_listening_lacks_the_capability_and_still_notifies_others() {
    let place = Place::new();
    let (store, deaf) = (place.open().await, place.builder().listening(false).connect().await.unwrap());
    assert!(deaf.capabilities().watch.is_none());
    let key = key("a");
    deaf.claim(&request(&key, 1)).await.unwrap();
    let waiting = tokio::spawn(watch(&store, &key));
    until(|| words(server(), place.salt()) == 1).await;
    deaf.complete(&held(&key, 1), &done(b"paid")).await.unwrap();
    ends("who waited is woken", waiting).await;
}

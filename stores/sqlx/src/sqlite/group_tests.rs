//! Tests of calls that wait for the connection and share a transaction. The tests hold the connection until all calls
//! wait.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use idempotent_core::{
    Batch, Clock, InFlight, OwnerToken, Purge, ReleaseKind, StateKind, StoreErrorKind, Timer, Timestamp,
};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions};

use super::tests::{key, open, request};
use super::*;

/// Each reading is a millisecond later than the one before.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> Timestamp {
        Timestamp(1_750_000_000_000_000 + self.0.fetch_add(1_000, Ordering::SeqCst))
    }

    fn sleep_until(&self, _: Instant) -> Timer {
        Box::pin(std::future::pending())
    }
}

pub(super) fn held(part: &str) -> ClaimHandle {
    ClaimHandle::unanswered(key(part), OwnerToken(1))
}

fn done(value: &[u8]) -> Completion {
    Completion { value: Some(Arc::from(value)), retain: Duration::from_secs(60) }
}

fn release(verdict: ReleaseKind) -> Release {
    Release { kind: verdict, delay: Duration::ZERO, retention: Duration::from_secs(60), error: Arc::from("it failed") }
}

async fn sql(folder: &tempfile::TempDir, text: &str) {
    let options = SqliteConnectOptions::new().filename(folder.path().join("records.db"));
    let mut other = options.connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut other).await.unwrap();
}

/// Starts the calls one after the other; all of them wait for the writer when it is let go.
async fn together<T: Send + 'static>(store: &SqliteStore, calls: Vec<BoxFuture<'static, T>>) -> Vec<T> {
    let turn = store.0.access.writer.turn().await.unwrap();
    let mut waiting = Vec::new();
    for call in calls {
        let before = store.0.writes.len();
        waiting.push(tokio::spawn(call));
        while store.0.writes.len() == before {
            tokio::task::yield_now().await;
        }
    }
    drop(turn);
    join_all(waiting).await.into_iter().map(Result::unwrap).collect()
}

/// Calls a clone that lives as long as the call.
fn call<T, F: Future<Output = T> + Send + 'static>(
    store: &SqliteStore,
    call: impl FnOnce(SqliteStore) -> F,
) -> BoxFuture<'static, T> {
    call(store.clone()).boxed()
}

fn claims(store: &SqliteStore, parts: &[&'static str]) -> Vec<BoxFuture<'static, Result<Claim, StoreError>>> {
    let claim = |part| call(store, move |store| async move { store.claim(&request(part)).await });
    parts.iter().copied().map(claim).collect()
}

fn completion(
    store: &SqliteStore,
    part: &'static str,
    value: Vec<u8>,
) -> BoxFuture<'static, Result<Settled, StoreError>> {
    call(store, move |store| async move { store.complete(&held(part), &done(&value)).await })
}

#[tokio::test]
async fn calls_that_wait_are_decided_in_the_order_they_came_at_one_time_and_each_gets_its_own_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db");
    let store = SqliteStore::builder(path.to_str().unwrap()).clock(Arc::new(Ticking::default())).open().await.unwrap();
    for part in ["a", "b", "c"] {
        store.claim(&request(part)).await.unwrap();
    }
    let settle = |verdict| move |store: SqliteStore| async move { store.release(&held("a"), &release(verdict)).await };
    let calls = vec![
        call(&store, |store| async move { store.renew(&held("a"), Duration::from_secs(40)).await }),
        completion(&store, "a", b"first".to_vec()),
        completion(&store, "a", b"second".to_vec()),
        call(&store, settle(ReleaseKind::Delete)),
        completion(&store, "nobody's", Vec::new()),
        call(&store, |store| async move { store.release(&held("b"), &release(ReleaseKind::Delete)).await }),
        call(&store, |store| async move { store.release(&held("c"), &release(ReleaseKind::Vacate)).await }),
    ];
    let answers: Vec<_> = together(&store, calls).await.into_iter().map(Result::unwrap).collect();
    let (consumed, absent) = (Settled::Lost { now: StateKind::Consumed }, Settled::Lost { now: StateKind::Absent });
    let done = Settled::Done;
    assert_eq!(answers, [done, done, done, consumed, absent, done, done]);
    let a = store.peek(&key("a")).await.unwrap().unwrap();
    let c = store.peek(&key("c")).await.unwrap().unwrap();
    assert!(matches!(&a.state, idempotent_core::State::Consumed { value: Some(value), .. } if **value == *b"first"));
    assert_eq!(c.state.kind(), StateKind::Vacant);
    assert_eq!(a.updated_at, c.updated_at, "one transaction, one time");
    assert!(store.peek(&key("b")).await.unwrap().is_none());
    assert!(matches!(store.claim(&request("b")).await.unwrap(), Claim::Acquired(_)));
}

#[tokio::test]
async fn one_of_several_concurrent_claims_of_a_key_is_granted() {
    let (_folder, store) = open().await;
    let claim = |owner| {
        let request = ClaimRequest { owner: OwnerToken(owner), ..request("a") };
        call(&store, move |store| async move { store.claim(&request).await.unwrap() })
    };
    let answers = together(&store, (1..=8).map(claim).collect()).await;
    assert!(matches!(answers[0], Claim::Acquired(_)), "first come, first served: {answers:?}");
    let in_flight = |answer: &Claim| matches!(answer, Claim::InFlight(InFlight::Leased { .. }));
    assert!(answers[1..].iter().all(in_flight), "{answers:?}");
}

#[tokio::test]
async fn a_duplicate_is_answered_while_the_writer_is_busy() {
    let (_folder, store) = open().await;
    for part in ["done", "running"] {
        store.claim(&request(part)).await.unwrap();
    }
    store.complete(&held("done"), &done(b"x")).await.unwrap();
    let turn = store.0.access.writer.turn().await.unwrap();
    let other = |part| ClaimRequest { owner: OwnerToken(2), ..request(part) };
    assert!(matches!(store.claim(&other("done")).await, Ok(Claim::Consumed(consumed)) if consumed.value.is_some()));
    assert!(matches!(store.claim(&other("running")).await, Ok(Claim::InFlight(_))));
    drop(turn);
}

#[tokio::test]
async fn a_duplicate_after_many_new_keys_is_answered_although_another_process_has_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db");
    let wait = Duration::from_millis(20);
    let store = SqliteStore::builder(path.to_str().unwrap()).busy_timeout(wait).open().await.unwrap();
    for part in 0..20 {
        store.claim(&request(&part.to_string())).await.unwrap();
    }
    store.complete(&held("3"), &done(b"x")).await.unwrap();
    let mut other = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let other = |part| ClaimRequest { owner: OwnerToken(2), ..request(part) };
    assert_eq!(store.claim(&other("new")).await.unwrap_err().kind(), StoreErrorKind::NotApplied);
    assert!(matches!(store.claim(&other("3")).await, Ok(Claim::Consumed(_))));
    assert!(matches!(store.claim(&other("4")).await, Ok(Claim::InFlight(_))));
    assert!(matches!(store.claim(&request("5")).await, Ok(Claim::Acquired(_))), "its own");
}

#[tokio::test]
async fn one_call_that_does_not_fit_does_not_spoil_the_others() {
    let (_folder, store) = open().await;
    for part in ["a", "b", "c"] {
        store.claim(&request(part)).await.unwrap();
    }
    store.0.access.writer.turn().await.unwrap().first(sqlx::query("PRAGMA max_page_count=5")).await.unwrap();
    let parts = [("a", 1), ("b", 1 << 20), ("c", 1)];
    let answers = together(&store, parts.map(|(part, size)| completion(&store, part, vec![7; size])).into()).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Settled::Done))), "{answers:?}");
    for (part, stored) in [("a", true), ("b", false), ("c", true)] {
        let other = ClaimRequest { owner: OwnerToken(2), ..request(part) };
        let Claim::Consumed(found) = store.claim(&other).await.unwrap() else { panic!("not consumed") };
        assert_eq!(found.value.is_some(), stored, "{part}");
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_fails_alone_in_a_group() {
    let (folder, store) = open().await;
    for part in ["a", "b", "c"] {
        store.claim(&request(part)).await.unwrap();
    }
    let b: String = key("b").hash().to_be_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    sql(&folder, &format!("UPDATE idempotent_record SET owner=NULL WHERE id=x'{b}'")).await;
    let answers = together(&store, ["a", "b", "c"].map(|part| completion(&store, part, Vec::new())).into()).await;
    let [Ok(Settled::Done), Err(error), Ok(Settled::Done)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    assert!(error.to_string().contains("`owner`"), "{error}");
}

#[tokio::test]
async fn a_failed_commit_is_reported_to_all_callers_and_changes_nothing() {
    let (folder, store) = open().await;
    // A constraint that is judged by the commit.
    sql(
        &folder,
        "CREATE TABLE parent (id INTEGER PRIMARY KEY);
         CREATE TABLE child (parent REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
         CREATE TRIGGER breaks AFTER INSERT ON idempotent_record BEGIN INSERT INTO child VALUES (1); END",
    )
    .await;
    for answer in together(&store, claims(&store, &["a", "b", "c"])).await {
        assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Schema);
    }
    sql(&folder, "DROP TRIGGER breaks").await;
    for part in ["a", "b", "c"] {
        assert!(store.peek(&key(part)).await.unwrap().is_none());
    }
    for answer in together(&store, claims(&store, &["a", "b", "c"])).await {
        assert!(matches!(answer, Ok(Claim::Acquired(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn a_lock_of_another_process_is_waited_for_once_by_a_whole_group() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db");
    let wait = Duration::from_millis(20);
    let store = SqliteStore::builder(path.to_str().unwrap()).busy_timeout(wait).open().await.unwrap();
    let mut other = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let mut sources = 0;
    for answer in together(&store, claims(&store, &["a", "b", "c"])).await {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotApplied);
        assert!(error.to_string().contains("locked by another process"), "{error}");
        sources += usize::from(std::error::Error::source(&error).is_some());
    }
    assert_eq!(sources, 0, "one error of SQLite's, told to all: none of them tried again alone");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    for answer in together(&store, claims(&store, &["a", "b", "c"])).await {
        assert!(matches!(answer, Ok(Claim::Acquired(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn a_cancelled_caller_does_not_cancel_the_answers_of_others() {
    let (_folder, store) = open().await;
    let turn = store.0.access.writer.turn().await.unwrap();
    let mut calls: Vec<_> = claims(&store, &["first", "second", "third"]).into_iter().map(tokio::spawn).collect();
    while store.0.writes.len() < 3 {
        tokio::task::yield_now().await;
    }
    // The one whose claim began the service, before anything was sent.
    let first = calls.remove(0);
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    drop(turn);
    for call in calls {
        assert!(matches!(call.await.unwrap(), Ok(Claim::Acquired(_))));
    }
    assert!(store.peek(&key("first")).await.unwrap().is_none(), "nobody waits for it: it is not sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_go_away_at_any_moment_leave_a_queue_that_is_served() {
    let (_folder, store) = open().await;
    let tasks = (0..16_u32).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..60 {
                let part = format!("{task} {round}");
                let yields = async {
                    for _ in 0..(task * 7 + round) % 40 {
                        tokio::task::yield_now().await;
                    }
                };
                let request = request(&part);
                tokio::select! { biased; _ = store.claim(&request) => {}, () = yields => {} }
                // Whether it was applied or not: the same owner asks again.
                assert!(matches!(store.claim(&request).await, Ok(Claim::Acquired(_))));
                assert_eq!(store.complete(&held(&part), &done(b"")).await.unwrap(), Settled::Done);
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    while store.0.writes.is_served() || store.0.looks.is_served() {
        tokio::task::yield_now().await;
    }
    assert_eq!((store.0.writes.len(), store.0.looks.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_a_purge_and_an_operator_get_their_turn_among_many_callers() {
    let (_folder, store) = open().await;
    let over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..16_u32)
        .map(|task| {
            let (store, over) = (store.clone(), over.clone());
            tokio::spawn(async move {
                for round in 0.. {
                    let part = format!("{task} {round}");
                    assert!(matches!(store.claim(&request(&part)).await, Ok(Claim::Acquired(_))));
                    if over.load(Ordering::SeqCst) {
                        return round;
                    }
                }
                unreachable!()
            })
        })
        .collect();
    for round in 0..20 {
        let requests: Vec<_> = (0..4).map(|part| request(&format!("batch {round} {part}"))).collect();
        for answer in store.claim_all(&requests).await {
            assert!(matches!(answer, Ok(Claim::Acquired(_))), "{answer:?}");
        }
        store.purge(10).await.unwrap();
        let fencing = store.peek(&requests[0].key).await.unwrap().unwrap().fencing;
        let forgotten = store.forget(&requests[0].key, fencing, true, Duration::from_secs(60)).await.unwrap();
        assert_eq!(forgotten, Settled::Done);
    }
    over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_purge_rests_after_a_step_for_the_time_of_that_step() {
    let (folder, store) = open().await;
    store.claim(&request("old")).await.unwrap();
    sql(&folder, "UPDATE idempotent_record SET expires_at=1, fencing=1").await;
    let options = SqliteConnectOptions::new().filename(folder.path().join("records.db"));
    let mut other = options.connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let purging = tokio::spawn({
        let store = store.clone();
        async move { store.purge(10).await.unwrap() }
    });
    while !store.0.access.writer.is_taken() {
        tokio::task::yield_now().await;
    }
    // Its step has begun, and lasts as long as the other one has the lock.
    let began = Instant::now();
    tokio::time::sleep(Duration::from_millis(200)).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    let (step, over) = (began.elapsed(), Instant::now());
    assert_eq!(purging.await.unwrap(), 1);
    assert!(over.elapsed() >= step, "it was back after {:?}", over.elapsed());
}

#[test]
fn a_runtime_that_ends_leaves_no_call_of_another_one_unanswered() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let (_folder, store) = second.block_on(open());
    let turn = second.block_on(store.0.access.writer.turn()).unwrap();
    let (held, release) = (held("a"), release(ReleaseKind::Delete));
    // Its renewal begins the service, in its runtime.
    first.block_on(async {
        let mut renewal = Box::pin(store.renew(&held, Duration::from_secs(1)));
        assert!((&mut renewal).now_or_never().is_none());
    });
    let mut released = Box::pin(store.release(&held, &release));
    second.block_on(async { assert!((&mut released).now_or_never().is_none()) });
    drop(first);
    let error = second.block_on(released).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
    drop(turn);
    assert!(matches!(second.block_on(store.claim(&request("a"))), Ok(Claim::Acquired(_))));
}

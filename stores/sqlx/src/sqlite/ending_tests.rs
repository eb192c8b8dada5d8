//! Runtimes that end, polls without one, and a lock held by another process, while calls queue.
#![allow(clippy::unwrap_used)]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use idempotent_core::{Claim, ClaimRequest, OwnerToken, Store};
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::runtime::{Builder, Runtime};

use super::SqliteStore;
use super::group_tests::held;
use super::tests::{open, request};

/// No answer takes so long; one that would never come is given up.
const LONG: Duration = Duration::from_secs(20);

fn current() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Claims on a separate thread, because the claim may block forever.
fn is_claimed(runtime: Runtime, store: SqliteStore, part: &'static str) -> bool {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(runtime.block_on(store.claim(&request(part)))));
    matches!(told.recv_timeout(LONG), Ok(Ok(Claim::Acquired(_))))
}

#[test]
fn a_call_of_a_runtime_that_is_ending_hangs_neither_itself_nor_others() {
    let first = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let second = current();
    let (_folder, store) = second.block_on(open());
    let turn = second.block_on(store.0.access.writer.turn()).unwrap();
    let ((begin, begun), (go, gone), (end, ended)) = (channel(), channel(), channel());
    let own = store.clone();
    first.spawn(async move {
        begin.send(()).unwrap();
        // In the middle of a poll, while the runtime shuts down.
        gone.recv().unwrap();
        let held = held("a");
        let renewal = Box::pin(own.renew(&held, Duration::from_secs(1)));
        let _ = catch_unwind(AssertUnwindSafe(|| renewal.now_or_never()));
        end.send(()).unwrap();
    });
    begun.recv().unwrap();
    first.shutdown_background();
    go.send(()).unwrap();
    assert!(ended.recv_timeout(LONG).is_ok(), "the poll came back");
    drop(turn);
    assert!(is_claimed(second, store, "b"));
}

#[test]
fn a_poll_outside_of_a_runtime_does_not_end_the_store() {
    let runtime = current();
    let (_folder, store) = runtime.block_on(open());
    let turn = runtime.block_on(store.0.access.writer.turn()).unwrap();
    let (tell, told) = channel();
    let own = store.clone();
    std::thread::spawn(move || {
        let foreign = request("a");
        let _ = catch_unwind(AssertUnwindSafe(|| own.claim(&foreign).now_or_never().is_some()));
        tell.send(())
    });
    assert!(told.recv_timeout(LONG).is_ok(), "the poll came back");
    drop(turn);
    assert!(is_claimed(runtime, store, "b"));
}

/// Claims of new keys skip their look; the first duplicate ends that.
#[tokio::test]
async fn after_new_keys_one_duplicate_at_most_waits_for_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db");
    // Longer than a busy machine takes for a call that need not wait.
    let wait = Duration::from_secs(2);
    let store = SqliteStore::builder(path.to_str().unwrap()).busy_timeout(wait).open().await.unwrap();
    for part in 0..20 {
        store.claim(&request(&part.to_string())).await.unwrap();
    }
    let mut other = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let mut waited = 0;
    for _ in 0..5 {
        let start = Instant::now();
        let duplicate = ClaimRequest { owner: OwnerToken(2), ..request("3") };
        assert!(matches!(store.claim(&duplicate).await, Ok(Claim::InFlight(_))));
        waited += u32::from(start.elapsed() >= wait);
    }
    assert!(waited <= 1, "{waited} of 5 waited");
}

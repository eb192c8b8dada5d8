//! Waiting for a run of another process, by pub/sub instead of polling.

use std::time::Duration;

use idempotent_core::{Claim, ClaimHandle, OnInFlight, Outcome, Policy, ReleaseKind, Settled, Store, Watching};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use tokio::task::JoinHandle;

use crate::support::runs::{End, Job, Worker, raw, secs};
use crate::support::{HOUR, ask, calls, done, hold, key, open, open_without_cache, put_down, until};

fn watch(store: &RedisStore, part: &str) -> Watching {
    store.capabilities().watch.unwrap().watch(&key(part))
}

async fn ends<T>(watching: impl Future<Output = T>) -> T {
    tokio::time::timeout(secs(30), watching).await.expect("the waiter is woken")
}

/// Returns whether a waiter is registered: bit 4 of the flags.
fn is_waited_for(server: &RedisServer, part: &str) -> bool {
    raw(server, part).get(37).is_some_and(|flags| flags & 4 != 0)
}

/// Watches a key in a task, and returns once the server knows of it.
async fn start_watch(server: &RedisServer, store: &RedisStore, part: &str) -> JoinHandle<()> {
    let watching = tokio::spawn(watch(store, part));
    until("it waits", async || is_waited_for(server, part)).await;
    watching
}

/// Creates a user without permissions for channels, and returns a store of this user.
async fn deaf(server: &RedisServer) -> RedisStore {
    let rights = ["ACL", "SETUSER", "deaf", "on", ">secret", "~idempotent:*", "resetchannels", "+@all"];
    assert_eq!(server.command(&rights).text(), "OK");
    RedisStore::connect(server.url().replace("redis://", "redis://deaf:secret@")).await.unwrap()
}

fn waiting(store: &RedisStore) -> bool {
    !format!("{store:?}").contains("waiting: 0")
}

async fn settle(store: &RedisStore, held: &ClaimHandle, how: Option<ReleaseKind>) {
    let settled = match how {
        None => store.complete(held, &done(None)).await,
        Some(verdict) => store.release(held, &put_down(verdict)).await,
    };
    assert_eq!(settled.unwrap(), Settled::Done);
}

/// The ways to end a run: a completion, and each kind of release.
const WAYS: [Option<ReleaseKind>; 6] = [
    None,
    Some(ReleaseKind::Delete),
    Some(ReleaseKind::Vacate),
    Some(ReleaseKind::Refund),
    Some(ReleaseKind::MarkFailed),
    Some(ReleaseKind::MarkDead),
];

#[tokio::test]
async fn a_waiter_in_another_process_is_woken_by_every_kind_of_settlement() {
    let server = RedisServer::start();
    let (owner, waiter) = (open(&server).await, open(&server).await);
    for how in WAYS {
        let part = format!("{how:?}");
        let held = hold(&owner, &part, 1).await;
        let watching = start_watch(&server, &waiter, &part).await;
        assert!(!watching.is_finished());
        settle(&owner, &held, how).await;
        ends(watching).await.unwrap();
    }
    let held = hold(&owner, "forgotten", 1).await;
    let watching = start_watch(&server, &waiter, "forgotten").await;
    let admin = owner.capabilities().admin.unwrap();
    assert_eq!(admin.forget(&held.key, held.fencing.unwrap(), true, HOUR).await.unwrap(), Settled::Done);
    ends(watching).await.unwrap();
}

/// The registration survives renewals by the owner.
#[tokio::test]
async fn a_long_wait_costs_one_or_two_calls() {
    let server = RedisServer::start();
    let (owner, waiter) = (open_without_cache(&server).await, open(&server).await);
    let held = hold(&owner, "k", 1).await;
    let before = calls(&server, "evalsha");
    let watching = start_watch(&server, &waiter, "k").await;
    // Three seconds: polling every 50 ms would cost sixty calls.
    for _ in 0..30 {
        owner.renew(&held, secs(30)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(is_waited_for(&server, "k") && !watching.is_finished());
    let asked = calls(&server, "evalsha") - before - 30;
    assert!(asked <= 3, "{asked} calls");
    settle(&owner, &held, None).await;
    watching.await.unwrap();
}

#[tokio::test]
async fn a_settlement_between_creating_and_polling_a_watch_is_not_missed() {
    let server = RedisServer::start();
    let (owner, waiter) = (open(&server).await, open_without_cache(&server).await);
    for how in WAYS {
        let part = format!("{how:?}");
        let held = hold(&owner, &part, 1).await;
        let watching = watch(&waiter, &part);
        settle(&owner, &held, how).await;
        // The watched run is over, and the key is free.
        ends(watching).await;
    }
    // The key was never held.
    ends(watch(&waiter, "never")).await;
}

#[tokio::test]
async fn a_dropped_or_finished_watch_leaves_no_registration() {
    let server = RedisServer::start();
    let (owner, waiter) = (open(&server).await, open(&server).await);
    let held = hold(&owner, "k", 1).await;
    assert!(!waiting(&waiter));
    let (first, second) = (watch(&waiter, "k"), watch(&waiter, "other"));
    assert!(waiting(&waiter));
    drop(second);
    let task = tokio::spawn(first);
    until("it waits", async || is_waited_for(&server, "k")).await;
    task.abort();
    task.await.unwrap_err();
    assert!(!waiting(&waiter), "{waiter:?}");
    let watching = watch(&waiter, "k");
    settle(&owner, &held, None).await;
    ends(watching).await;
    assert!(!waiting(&waiter), "{waiter:?}");
}

/// Two waiters in one process and one in another; one of them gives up.
#[tokio::test]
async fn a_waiter_that_gives_up_does_not_affect_other_waiters() {
    let server = RedisServer::start();
    let (owner, one, other) = (open(&server).await, open(&server).await, open(&server).await);
    let held = hold(&owner, "k", 1).await;
    let (stays, goes) = (tokio::spawn(watch(&one, "k")), tokio::spawn(watch(&one, "k")));
    let elsewhere = tokio::spawn(watch(&other, "k"));
    until("they wait", async || is_waited_for(&server, "k")).await;
    goes.abort();
    goes.await.unwrap_err();
    settle(&owner, &held, Some(ReleaseKind::Vacate)).await;
    for watching in [stays, elsewhere] {
        ends(watching).await.unwrap();
    }
}

/// A user without channel permissions can wait by polling at growing intervals.
#[tokio::test]
async fn a_waiter_without_channel_permissions_polls() {
    let server = RedisServer::start();
    let (owner, waiter) = (open(&server).await, deaf(&server).await);
    let held = hold(&owner, "k", 1).await;
    let watching = tokio::spawn(watch(&waiter, "k"));
    let before = calls(&server, "evalsha");
    until("it asks again", async || calls(&server, "evalsha") >= before + 3).await;
    assert!(!watching.is_finished());
    settle(&owner, &held, None).await;
    ends(watching).await.unwrap();
    // A settlement works without the permission to notify; waiters poll after a while.
    let held = hold(&waiter, "its own", 1).await;
    let watching = start_watch(&server, &owner, "its own").await;
    settle(&waiter, &held, None).await;
    ends(watching).await.unwrap();
    let told = owner.claim(&ask("its own", 2)).await.unwrap();
    assert!(matches!(told, Claim::Consumed(_)), "{told:?}");
    // The cache is unused, because no process could invalidate it.
    let before = calls(&server, "evalsha");
    assert!(matches!(waiter.claim(&ask("its own", 2)).await.unwrap(), Claim::Consumed(_)));
    assert_eq!(calls(&server, "evalsha"), before + 1);
}

/// Notifications during a lost connection are missed, so the end of the connection wakes waiters, too.
#[tokio::test]
async fn a_waiter_whose_connection_is_cut_misses_nothing() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address()).await;
    let (owner, waiter) = (open(&server).await, RedisStore::connect(proxy.url()).await.unwrap());
    let held = hold(&owner, "k", 1).await;
    let watching = start_watch(&server, &waiter, "k").await;
    proxy.refuse();
    proxy.cut_all();
    ends(watching).await.unwrap();
    // A watch that starts without a server polls until one is available.
    let watching = tokio::spawn(watch(&waiter, "k"));
    settle(&owner, &held, None).await;
    tokio::task::yield_now().await;
    proxy.listen();
    ends(watching).await.unwrap();
}

/// The owner is in one process, the waiters are in others, and one of them cannot subscribe.
#[tokio::test]
async fn waiting_runs_get_the_result_of_another_process() {
    let server = RedisServer::start();
    let policy = Policy::new().on_in_flight(OnInFlight::Wait(secs(60)));
    let owner = Worker::new(open(&server).await, policy);
    let workers = [Worker::new(open(&server).await, policy), Worker::new(deaf(&server).await, policy)];
    for (part, end) in [("goes well", End::Ok), ("fails", End::Err)] {
        let (first, second) = (Job::held(), Job::quick());
        let run = owner.begin(part, &first).await;
        let waiters: Vec<_> = workers.iter().map(|worker| worker.spawn(part, &second)).collect();
        until("they wait", async || is_waited_for(&server, part)).await;
        first.end(end);
        assert_eq!(run.await.unwrap().1.is_ok(), end == End::Ok);
        let mut names = Vec::new();
        for waiter in waiters {
            let (outcome, answer) = waiter.await.unwrap();
            assert_eq!(answer.unwrap(), 1);
            names.push(outcome.name());
        }
        names.sort_unstable();
        let expected = if end == End::Ok { ["replayed", "replayed"] } else { ["ran", "replayed"] };
        assert_eq!((names, second.runs()), (expected.to_vec(), u32::from(end == End::Err)));
    }
    assert_eq!(owner.outcome("goes well", &Job::quick()).await, Outcome::Replayed);
}

//! third round.
use std::sync::Arc;
use std::time::Duration;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::common::{AppError, Job, PlainHandler, ask, id, key_of, ms, on_memory, secs};
use idempotent::store::{Claim, ClaimRequest};
use idempotent::{BatchItem, Call, Clock, Identity, MemoryStore, OnInFlight, Outcome, Policy, Scene, Store};
use idempotent_testkit::{FOREVER, StoreOperation, VirtualClock};

/// A run that is dropped while the store hangs leaves no task in the runtime.
#[test]
fn taking_back_a_dropped_claim_is_given_up_some_day() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().lease(secs(3)));
        worker.store.hang(StoreOperation::Claim, FOREVER);
        worker.store.hang(StoreOperation::Release, FOREVER);
        let metrics = tokio::runtime::Handle::current().metrics();
        let before = metrics.num_alive_tasks();
        for n in 0..50 {
            let run = worker.spawn(&n.to_string(), &Job::takes(ms(0))).await;
            run.abort();
            run.await.unwrap_err();
        }
        world.clock.advance(secs(3600)).await;
        let left = metrics.num_alive_tasks() - before;
        assert!(left < 5, "{left} tasks an hour after the last lease");
    });
}

/// Runs that end at once share one heartbeat's task, which ends when none has come for a while.
#[test]
fn short_runs_share_a_driver_that_ends_when_they_do() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let tasks = tokio::runtime::Handle::current().metrics();
        let before = tasks.num_alive_tasks();
        for n in 0..50 {
            assert_eq!(worker.outcome(&n.to_string(), &Job::takes(ms(0))).await, Outcome::Ran);
            world.clock.settle().await;
            assert_eq!(tasks.num_alive_tasks() - before, 1, "after run {n}");
        }
        world.clock.advance(secs(3)).await;
        assert_eq!(tasks.num_alive_tasks(), before);
    });
}

#[test]
fn waiters_that_are_dropped_leave_nothing() {
    on_memory(async |_| {
        let clock = VirtualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let watch = store.capabilities().watch.unwrap();
        let key = key_of("k");
        drop(watch.watch(&key));
        let mut pending = Vec::new();
        for _ in 0..10 {
            let waiting = watch.watch(&key);
            pending.push(tokio::spawn(waiting));
        }
        tokio::task::yield_now().await;
        for task in pending {
            task.abort();
            let _ = task.await;
        }
        assert!(format!("{store:?}").contains("Waiters(0)"), "{store:?}");
    });
}

fn request(key: &str, owner: u128) -> ClaimRequest {
    ask(key_of(key), owner)
}

/// A batch that is dropped midway is applied as a whole or, where it was still waiting for its turn, not at all; and the
/// connection serves the next one.
#[cfg(feature = "stores")]
#[test]
fn a_dropped_batch_on_sqlite_is_all_or_nothing() {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let store = idempotent::SqliteStore::open(dir.path().join("r.db").to_str().unwrap()).await.unwrap();
        let (mut all, mut none) = (0, 0);
        for round in 0..60u64 {
            let keys: Vec<_> = (0..70).map(|n| format!("{round}-{n}")).collect();
            let requests: Vec<_> = keys.iter().map(|key| request(key, 1)).collect();
            let batch = store.capabilities().batch.unwrap();
            let ahead: Vec<_> = (0..70).map(|n| request(&format!("ahead {round}-{n}"), 1)).collect();
            let ahead = tokio::spawn({
                let (store, odd) = (store.clone(), round % 2 == 1);
                async move { if odd { store.capabilities().batch.unwrap().claim_all(&ahead).await.len() } else { 0 } }
            });
            tokio::task::yield_now().await;
            let _ = tokio::time::timeout(Duration::from_micros(round * 60), batch.claim_all(&requests)).await;
            let other: Vec<_> = keys.iter().map(|key| request(key, 2)).collect();
            let answers = batch.claim_all(&other).await;
            ahead.await.unwrap();
            let won = answers.iter().filter(|answer| matches!(answer, Ok(Claim::Acquired(_)))).count();
            match won {
                70 => none += 1,
                0 => all += 1,
                some => panic!("round {round}: {some} of 70; {:?}", answers[0]),
            }
        }
        assert!(all > 0 && none > 0, "vacuous: {all} {none}");
    });
}

/// A claim that was given up is answered "in flight" and applied later. No handler runs, and no key is released.
#[test]
fn waiting_ends_at_its_limit_with_a_tiny_hint_too() {
    on_memory(async |world| {
        let owner = world.worker("a", Policy::new().lease(ms(1)));
        let waiter = world.worker("b", Policy::new().on_in_flight(OnInFlight::Wait(secs(2))));
        let _run = owner.spawn("k", &Job::takes(secs(60))).await;
        let run = waiter.spawn("k", &Job::takes(ms(0))).await;
        world.clock.advance(secs(3)).await;
        assert!(run.is_finished());
        let claims = world.asked(StoreOperation::Claim).len();
        assert!(claims < 3000, "{claims} claims in 2 s");
        let _ = world.clock.now();
        assert!(matches!(run.await.unwrap().0, Outcome::InFlight { .. } | Outcome::Ran));
    });
}

/// "In-flight deferrals never spend an attempt."
#[test]
fn a_batch_whose_inner_run_is_in_flight_spends_no_attempt() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().max_retries(1));
        let _held = worker.spawn("inner", &Job::takes(secs(600))).await;
        let mut last = None;
        for _ in 0..4 {
            let handler = PlainHandler::batch({
                let executor = worker.executor.clone();
                move |_: Vec<BatchItem<u8>>| async move {
                    let inner = PlainHandler::new(|| async { Ok::<u32, AppError>(1) });
                    vec![executor.run(Call::new(id("inner")), inner).await]
                }
            });
            let mut answers = worker.executor.run_batch(vec![(Call::new(id("outer")), 1)], handler).await;
            last = answers.pop().map(|answer| answer.outcome);
        }
        let last = last.unwrap();
        assert!(!matches!(last, Outcome::Dead { .. }), "buried, though it was only put off: {last:?}");
    });
}

/// `on_lease_lost = abort`: "It is dropped at its next await. The default."
#[test]
fn a_batch_handler_is_dropped_when_all_its_leases_are_lost() {
    on_memory(async |world| {
        let (a, b) = (world.worker("a", Policy::new().lease(secs(3))), world.worker("b", Policy::new().lease(secs(3))));
        a.store.fail_before(StoreOperation::Renew, FOREVER);
        let effects = Arc::new(AtomicU32::new(0));
        let _batch = tokio::spawn({
            let (a, effects, clock) = (a.clone(), effects.clone(), world.clock.clone());
            async move {
                let handler = PlainHandler::batch(move |items: Vec<BatchItem<u8>>| async move {
                    clock.sleep_until(clock.now() + secs(10)).await;
                    effects.fetch_add(1, SeqCst);
                    items.iter().map(|_| Ok::<u32, AppError>(1)).collect()
                });
                a.executor.run_batch(vec![(Call::new(id("k")), 1)], handler).await.len()
            }
        });
        world.clock.advance(secs(4)).await;
        let job = Job::takes(ms(0));
        assert_eq!(b.outcome("k", &job).await, Outcome::Ran, "taken over");
        world.clock.advance(secs(20)).await;
        assert_eq!(effects.load(SeqCst), 0, "the effect of a lease lost 7 s before");
    });
}

/// One name, one scene.
#[test]
fn scenes_of_one_name_have_one_policy() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let (one, two) = (Scene::Mq, Scene::Named("mq".into()));
        let key = |scene: &Scene| Identity::new(scene.clone(), "work", "k").key("idempotent").unwrap();
        assert_eq!(key(&one), key(&two), "the same record");
        assert_eq!(worker.executor.policy(&one), worker.executor.policy(&two), "under two policies");
    });
}

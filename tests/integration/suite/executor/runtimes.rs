//! In real time: one executor shared by several runtimes (thread-per-core servers, sync programs that
//! call `block_on`), and stores that hang.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{AppError, PlainHandler, id, ms, secs};
use crate::without_capabilities::Bare;
use idempotent::store::SystemClock;
use idempotent::{BatchItem, Call, Executor, Lease, MemoryStore, Outcome, Policy, Scene};
use idempotent_testkit::{FOREVER, FaultStore, StoreOperation};
use tokio::runtime::{Builder, Runtime};

fn single() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn executor(store: &MemoryStore) -> Executor {
    let policy = Policy::new().lease(ms(900)).jitter(0);
    Executor::builder(store.clone()).policy(Scene::Mq, policy).build().unwrap()
}

async fn run(executor: &Executor, key: &str, takes: Duration, runs: &Arc<AtomicU32>) -> Outcome {
    let handler = PlainHandler::new(|| async {
        runs.fetch_add(1, SeqCst);
        tokio::time::sleep(takes).await;
        Ok::<u32, AppError>(1)
    });
    Outcome::capture(executor.run(Call::new(id(key)), handler)).await.1.unwrap()
}

fn wait_for_a_run(runs: &AtomicU32) {
    while runs.load(SeqCst) == 0 {
        std::thread::sleep(ms(1));
    }
}

/// Starts the first run of this executor, and with it its heartbeat task, on a runtime of its own.
fn runtime_with_the_heartbeat_of(executor: &Executor) -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (executor, runs) = (executor.clone(), Arc::new(AtomicU32::new(0)));
    let counted = runs.clone();
    runtime.spawn(async move { run(&executor, "elsewhere", secs(60), &counted).await });
    wait_for_a_run(&runs);
    runtime
}

/// Ends the runtime, delivers `k` to the other process two leases later, and returns how often it ran there.
async fn delivered_again_after_the_end_of(runtime: Runtime, other_process: &Executor) -> u32 {
    tokio::time::sleep(ms(50)).await;
    runtime.shutdown_background();
    tokio::time::sleep(ms(2100)).await;
    let runs = Arc::new(AtomicU32::new(0));
    run(other_process, "k", ms(0), &runs).await;
    runs.load(SeqCst)
}

/// Starts a run that blocks its own thread, at once or after it stood by for a while.
fn thread_that_a_run_blocks(executor: &Executor, stands_by: Option<Duration>) -> JoinHandle<bool> {
    let (executor, runs) = (executor.clone(), Arc::new(AtomicU32::new(0)));
    let counted = runs.clone();
    let blocking = std::thread::spawn(move || {
        single().block_on(async {
            let handler = PlainHandler::new(|| async {
                if let Some(time) = stands_by {
                    tokio::time::sleep(time).await;
                }
                counted.fetch_add(1, SeqCst);
                std::thread::sleep(ms(4500));
                Ok::<u32, AppError>(1)
            });
            executor.run(Call::new(id("blocks")), handler).await.is_ok()
        })
    });
    wait_for_a_run(&runs);
    blocking
}

/// In real time, with a log of its calls.
fn counted() -> FaultStore {
    FaultStore::on_clock(MemoryStore::new(), Arc::new(SystemClock::new()))
}

fn renewals(store: &FaultStore) -> usize {
    store.log().iter().filter(|call| call.verb == StoreOperation::Renew).count()
}

/// A program that calls `block_on` on its own runtime at start-up, and keeps this runtime without polling it. The
/// renewal task remains there.
#[test]
fn a_runtime_that_is_alive_but_idle_does_not_end_all_heartbeats() {
    let store = MemoryStore::new();
    let (here, other_process) = (executor(&store), executor(&store));
    let runs = Arc::new(AtomicU32::new(0));
    let start_up = single();
    assert_eq!(start_up.block_on(run(&here, "first", ms(0), &runs)), Outcome::Ran);

    let (long, twice) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (first, second) = single().block_on(async {
        let late = async {
            tokio::time::sleep(ms(1800)).await;
            run(&other_process, "k", ms(0), &twice).await
        };
        tokio::join!(run(&here, "k", ms(3600), &long), late)
    });
    drop(start_up);
    assert_eq!(twice.load(SeqCst), 0, "ran again while the first was running: {first:?}, {second:?}");
    assert_eq!(first, Outcome::Ran);
}

/// A thread-per-core server (actix): one handler that blocks its own thread takes every other thread's heartbeats
/// and guards with it.
#[test]
fn a_handler_that_blocks_its_own_runtime_does_not_stop_the_others_heartbeats() {
    let store = MemoryStore::new();
    let (here, other_process) = (executor(&store), executor(&store));
    let (long, twice) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let blocking = thread_that_a_run_blocks(&here, None);
    let was_lost = Arc::new(AtomicU32::new(0));
    let (first, second) = single().block_on(async {
        let late = async {
            tokio::time::sleep(ms(1800)).await;
            run(&other_process, "k", ms(0), &twice).await
        };
        let handler = PlainHandler::new(|| async {
            long.fetch_add(1, SeqCst);
            tokio::time::sleep(ms(3000)).await;
            was_lost.fetch_add(u32::from(Lease::current().unwrap().is_lost()), SeqCst);
            Ok::<u32, AppError>(1)
        });
        tokio::join!(async { Outcome::capture(here.run(Call::new(id("k")), handler)).await.1 }, late)
    });
    let _ = blocking.join();
    assert_eq!(
        (twice.load(SeqCst), was_lost.load(SeqCst)),
        (0, 0),
        "ran again while the first was running, and the first was not dropped either: {first:?}, {second:?}"
    );
}

/// "If that task's runtime ends, a running run adopts them": a batch is a run.
#[test]
fn a_batch_adopts_an_orphaned_heartbeat() {
    let store = MemoryStore::new();
    let (here, other_process) = (executor(&store), executor(&store));
    let first = runtime_with_the_heartbeat_of(&here);
    let (batch, twice) = single().block_on(async {
        let handler = PlainHandler::batch(|items: Vec<BatchItem<u8>>| async move {
            tokio::time::sleep(ms(3600)).await;
            items.iter().map(|_| Ok::<u32, AppError>(1)).collect()
        });
        let batch = here.run_batch(vec![(Call::new(id("k")), 1)], handler);
        let late = delivered_again_after_the_end_of(first, &other_process);
        tokio::join!(batch, late)
    });
    assert_eq!(twice, 0, "ran again while the batch was running: {:?}", batch[0].outcome);
}

/// "A duration below 1 ms counts as 1 ms".
#[test]
fn a_heartbeat_of_a_nanosecond_counts_as_a_millisecond() {
    let policy = Policy::new().heartbeat(Duration::from_nanos(1));
    let store = counted();
    let executor = Executor::builder(Bare(store.clone())).policy(Scene::Mq, policy).build().unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(async {
        let hung = tokio::spawn(async move { run(&executor, "k", ms(200), &runs).await });
        assert!(tokio::time::timeout(secs(5), hung).await.is_ok(), "starved");
    });
    let renewals = renewals(&store);
    assert!(renewals <= 220, "{renewals} renewals in 200 ms");
}

/// Futures of Send handlers are Send, also where they borrow.
#[test]
fn futures_are_send() {
    fn send<T: Send>(future: T) -> T {
        future
    }
    let runtime = single();
    runtime.block_on(async {
        let executor = Executor::new(MemoryStore::new());
        let (text, list) = ("borrowed".to_owned(), [1u8, 2]);
        let one = PlainHandler::new(|| async { Ok::<usize, AppError>(text.len()) });
        send(executor.run(Call::new(id("a")), one)).await.unwrap();
        let items = list.iter().map(|n| (Call::new(id(&n.to_string())), n)).collect::<Vec<_>>();
        let many = PlainHandler::batch(|items: Vec<BatchItem<&u8>>| async move {
            items.iter().map(|given| Ok::<usize, AppError>(text.len() + usize::from(*given.item))).collect()
        });
        assert_eq!(send(executor.run_batch(items, many)).await.len(), 2);
        send(executor.scope(async {})).await;
        send(Outcome::capture(async {})).await;
        send(Executor::detach(async {})).await;
        send(executor.drain(ms(1))).await;
    });
}

/// The same in real time, with a store that fails immediately (connection refused, pool closed) and two runs with
/// different start times.
#[test]
fn refused_renewals_do_not_starve_the_runtime() {
    let policy = Policy::new().lease(secs(3));
    let store = counted();
    store.fail_before(StoreOperation::Renew, FOREVER);
    let executor = Executor::builder(Bare(store.clone())).policy(Scene::Mq, policy).build().unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    single().block_on(async {
        for (key, after) in [("one", 0), ("two", 590)] {
            tokio::time::sleep(ms(after)).await;
            let (executor, runs) = (executor.clone(), runs.clone());
            tokio::spawn(async move { run(&executor, key, secs(60), &runs).await });
        }
        tokio::time::sleep(secs(3)).await;
    });
    let renewals = renewals(&store);
    assert!(renewals <= 8, "{renewals} renewals");
}

/// The same for a single run: adopted.
#[test]
fn a_run_adopts_an_orphaned_heartbeat() {
    let store = MemoryStore::new();
    let (here, other_process) = (executor(&store), executor(&store));
    let first = runtime_with_the_heartbeat_of(&here);
    let long = Arc::new(AtomicU32::new(0));
    let (outcome, twice) = single().block_on(async {
        let late = delivered_again_after_the_end_of(first, &other_process);
        tokio::join!(run(&here, "k", ms(3600), &long), late)
    });
    assert_eq!(twice, 0, "ran again while the first was running: {outcome:?}");
}

/// The run that is woken to take over the renewals may itself be blocked.
#[test]
fn an_orphaned_heartbeat_is_adopted_though_one_run_blocks() {
    let store = MemoryStore::new();
    let (here, other_process) = (executor(&store), executor(&store));
    let first = runtime_with_the_heartbeat_of(&here);
    let blocking = thread_that_a_run_blocks(&here, Some(ms(20)));
    let long = Arc::new(AtomicU32::new(0));
    let (outcome, twice) = single().block_on(async {
        let late = delivered_again_after_the_end_of(first, &other_process);
        tokio::join!(run(&here, "k", ms(3000), &long), late)
    });
    let _ = blocking.join();
    assert_eq!(twice, 0, "ran again while the first was running: {outcome:?}");
}

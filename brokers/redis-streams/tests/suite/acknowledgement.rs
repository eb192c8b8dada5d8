//! Duplicates in flight, failing stores, and the conditions for an acknowledgement.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use idempotent_core::{Executor, MemoryStore, Policy, Scene, SystemClock};
use idempotent_mq::{HandlerResult, KeyFrom, Message, MessageHandler, Messages, Source};
use idempotent_testkit::{FOREVER, FaultStore, StoreOperation};
use tokio::sync::Semaphore;

use crate::world::{World, ms, nothing_until, one, until};

/// Creates a world whose store fails on request.
fn failing(policy: Policy) -> (World, FaultStore) {
    let store = FaultStore::on_clock(MemoryStore::new(), Arc::new(SystemClock::new()));
    let policy = policy.or(Policy::new().retry_delay(ms(100)).in_flight_delay(ms(100)).jitter(0));
    let executor = Executor::builder(store.clone()).policy(Scene::Mq, policy).build().unwrap();
    (World { executor, ..World::new() }, store)
}

/// Returns a handler that waits for a permit and is keyed by the body.
fn gated(open: &Arc<Semaphore>) -> (Arc<AtomicU64>, MessageHandler) {
    let runs = Arc::new(AtomicU64::new(0));
    let (counted, open) = (runs.clone(), open.clone());
    let key = KeyFrom::message("body", |message: &Message<()>| message.delivery.body.clone());
    let handling = Messages::raw().keyed(key).run(move |_: Message<()>| {
        counted.fetch_add(1, SeqCst);
        let open = open.clone();
        async move {
            open.acquire().await.unwrap().forget();
            HandlerResult::Done
        }
    });
    (runs, handling)
}

#[tokio::test]
async fn a_completion_that_fails_once_is_retried_and_the_entry_acknowledged() {
    let (world, store) = failing(Policy::new());
    let (runs, handling) = gated(&Arc::new(Semaphore::new(1)));
    store.fail_before(StoreOperation::Complete, 1);
    let running = world.run(world.source("a").await, handling, 8, 6);
    world.send("1");
    until("it is acknowledged", async || running.counters.counts().acked == 1).await;
    let counts = running.ended().await.unwrap();
    assert!(store.is_played());
    assert_eq!((runs.load(SeqCst), counts.retried, world.pending().len()), (1, 0, 0));
}

#[tokio::test]
async fn an_entry_whose_run_cannot_be_recorded_is_neither_acknowledged_nor_released() {
    let (world, store) = failing(Policy::new().lease(ms(1_500)));
    let (runs, handling) = gated(&Arc::new(Semaphore::new(2)));
    store.fail_before(StoreOperation::Complete, FOREVER);
    let running = world.run(world.source("a").await, handling, 8, 6);
    world.send("1");
    until("it comes again", async || running.counters.counts().retried == 1).await;
    assert_eq!((world.calls("xack"), world.pending().len(), running.counters.counts().acked), (0, 1, 0));
    assert!(store.log().iter().all(|call| call.verb != StoreOperation::Release));
    store.heal();
    // After its lease, the run is repeated.
    until("it is acknowledged", async || running.counters.counts().acked == 1).await;
    assert_eq!((runs.load(SeqCst), world.pending().len()), (2, 0));
}

#[tokio::test]
async fn nothing_is_read_run_or_acknowledged_while_the_store_is_down() {
    let (world, store) = failing(Policy::new());
    let (runs, handling) = gated(&Arc::new(Semaphore::new(8)));
    store.down();
    world.send("1");
    let running = world.run(world.source("a").await, handling, 1, 1);
    until("it is put off", async || running.counters.counts().deferred >= 1).await;
    for number in 2..5 {
        world.send(number.to_string());
    }
    until("intake is paused", async || running.counters.counts().pauses == 1).await;
    assert_eq!((runs.load(SeqCst), world.calls("xack"), running.counters.counts().retried), (0, 0, 0));
    assert!(world.pending().len() <= 2, "what nobody runs is left to others: {:?}", world.pending());
    store.up();
    until("all are acknowledged", async || running.counters.counts().acked == 4).await;
    assert_eq!((runs.load(SeqCst), world.pending().len()), (4, 0));
}

#[tokio::test]
async fn an_entry_is_acknowledged_only_after_its_run_is_recorded() {
    let (world, store) = failing(Policy::new());
    let open = Arc::new(Semaphore::new(0));
    let (runs, handling) = gated(&open);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let running = world.run(world.source("a").await, handling, 8, 6);
    world.send("1");
    until("it runs", async || runs.load(SeqCst) == 1).await;
    assert_eq!((world.calls("xack"), world.pending().len()), (0, 1), "acknowledged before its handler");
    // The end of the run is not recorded yet.
    store.delay(StoreOperation::Complete, ms(300));
    open.add_permits(1);
    until("its end is being recorded", async || {
        let completes = store.log().iter().filter(|call| call.verb == StoreOperation::Complete).count();
        seen.lock().unwrap().push(world.calls("xack"));
        completes == 1
    })
    .await;
    assert_eq!((seen.lock().unwrap().last(), running.counters.counts().acked), (Some(&0), 0));
    until("it is acknowledged", async || running.counters.counts().acked == 1).await;
}

#[tokio::test]
async fn the_idle_time_of_an_entry_starts_when_it_is_read() {
    let world = World::new();
    let slow = async |name| world.builder(name).min_idle(ms(3_000)).connect().await.unwrap();
    let (mut first, mut second) = (slow("a").await, slow("b").await);
    world.send("1");
    let sent = Instant::now();
    // Longer than the idle time of a held entry.
    until("it is old", async || sent.elapsed() > ms(3_100)).await;
    let held = one(&mut first).await;
    let looks = world.calls("xautoclaim");
    nothing_until(&mut second, || world.calls("xautoclaim") > looks + 2).await;
    assert_eq!(world.pending(), [("a".to_owned(), 1)]);
    first.settler().settle(&held.0, &held.1, &idempotent_mq::Settlement::Ack).await.unwrap();
}

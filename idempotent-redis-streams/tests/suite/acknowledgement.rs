//! Duplicates in flight, stores that fail, and when an entry may be acknowledged.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use idempotent_core::{Executor, MemoryStore, Policy, Scene, SystemClock};
use idempotent_mq::{Handling, KeyFrom, Message, Messages, Source, Verdict};
use idempotent_testkit::{FOREVER, FaultStore, Verb};
use tokio::sync::Semaphore;

use crate::world::{World, ms, nothing_until, one, until};

/// A world whose store fails when it is told to.
fn failing(policy: Policy) -> (World, FaultStore) {
    let store = FaultStore::on_clock(MemoryStore::new(), Arc::new(SystemClock::new()));
    let policy = policy.or(Policy::new().retry_delay(ms(100)).in_flight_delay(ms(100)).jitter(0));
    let executor = Executor::builder(store.clone()).policy(Scene::Mq, policy).build().unwrap();
    (World { executor, ..World::new() }, store)
}

/// A handler that waits for a permit, keyed by the body.
fn gated(open: &Arc<Semaphore>) -> (Arc<AtomicU64>, Handling) {
    let runs = Arc::new(AtomicU64::new(0));
    let (counted, open) = (runs.clone(), open.clone());
    let key = KeyFrom::message("body", |message: &Message<()>| message.delivery.body.clone());
    let handling = Messages::raw().keyed(key).run(move |_: Message<()>| {
        counted.fetch_add(1, SeqCst);
        let open = open.clone();
        async move {
            open.acquire().await.unwrap().forget();
            Verdict::Done
        }
    });
    (runs, handling)
}

#[tokio::test]
async fn b3_a_copy_of_what_is_in_flight_is_put_off_without_an_attempt_and_acknowledged_later() {
    let (world, _) = failing(Policy::new().max_retries(1));
    let open = Arc::new(Semaphore::new(0));
    let (runs, handling) = gated(&open);
    let running = world.run(world.source("a").await, handling, 8, 6);
    world.send("1");
    until("it runs", || runs.load(SeqCst) == 1).await;
    world.send("1");
    // More often than there are attempts.
    until("the copy is put off", || running.counters.counts().deferred >= 3).await;
    assert_eq!((runs.load(SeqCst), world.calls("xack"), world.pending().len()), (1, 0, 2));
    open.add_permits(1);
    until("both are acknowledged", || running.counters.counts().acked == 2).await;
    let counts = running.ended().await.unwrap();
    assert_eq!((runs.load(SeqCst), counts.retried, counts.dead_lettered, world.pending().len()), (1, 0, 0, 0));
}

#[tokio::test]
async fn b12_a_flip_that_fails_once_is_tried_again_and_the_entry_acknowledged() {
    let (world, store) = failing(Policy::new());
    let (runs, handling) = gated(&Arc::new(Semaphore::new(1)));
    store.fail_before(Verb::Complete, 1);
    let running = world.run(world.source("a").await, handling, 8, 6);
    world.send("1");
    until("it is acknowledged", || running.counters.counts().acked == 1).await;
    let counts = running.ended().await.unwrap();
    assert!(store.is_played());
    assert_eq!((runs.load(SeqCst), counts.retried, world.pending().len()), (1, 0, 0));
}

#[tokio::test]
async fn b12_an_entry_whose_run_cannot_be_recorded_is_never_acknowledged_nor_freed() {
    let (world, store) = failing(Policy::new().lease(ms(1_500)));
    let (runs, handling) = gated(&Arc::new(Semaphore::new(2)));
    store.fail_before(Verb::Complete, FOREVER);
    let running = world.run(world.source("a").await, handling, 8, 6);
    world.send("1");
    until("it comes again", || running.counters.counts().retried == 1).await;
    assert_eq!((world.calls("xack"), world.pending().len(), running.counters.counts().acked), (0, 1, 0));
    assert!(store.log().iter().all(|call| call.verb != Verb::Release));
    store.heal();
    // When its lease is over it runs again.
    until("it is acknowledged", || running.counters.counts().acked == 1).await;
    assert_eq!((runs.load(SeqCst), world.pending().len()), (2, 0));
}

#[tokio::test]
async fn b13_while_the_store_is_down_nothing_runs_nothing_is_read_and_nothing_acknowledged() {
    let (world, store) = failing(Policy::new());
    let (runs, handling) = gated(&Arc::new(Semaphore::new(8)));
    store.down();
    world.send("1");
    let running = world.run(world.source("a").await, handling, 1, 1);
    until("it is put off", || running.counters.counts().deferred >= 1).await;
    for number in 2..5 {
        world.send(number.to_string());
    }
    until("intake is paused", || running.counters.counts().pauses == 1).await;
    assert_eq!((runs.load(SeqCst), world.calls("xack"), running.counters.counts().retried), (0, 0, 0));
    assert!(world.pending().len() <= 2, "what nobody runs is left to others: {:?}", world.pending());
    store.up();
    until("all are acknowledged", || running.counters.counts().acked == 4).await;
    assert_eq!((runs.load(SeqCst), world.pending().len()), (4, 0));
}

#[tokio::test]
async fn k57_k59_an_entry_is_not_acknowledged_before_its_run_has_ended_and_is_recorded() {
    let (world, store) = failing(Policy::new());
    let open = Arc::new(Semaphore::new(0));
    let (runs, handling) = gated(&open);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let running = world.run(world.source("a").await, handling, 8, 6);
    world.send("1");
    until("it runs", || runs.load(SeqCst) == 1).await;
    assert_eq!((world.calls("xack"), world.pending().len()), (0, 1), "acknowledged before its handler");
    // Its end is not recorded yet.
    store.delay(Verb::Complete, ms(300));
    open.add_permits(1);
    until("its end is being recorded", || {
        let completes = store.log().iter().filter(|call| call.verb == Verb::Complete).count();
        seen.lock().unwrap().push(world.calls("xack"));
        completes == 1
    })
    .await;
    assert_eq!((seen.lock().unwrap().last(), running.counters.counts().acked), (Some(&0), 0));
    until("it is acknowledged", || running.counters.counts().acked == 1).await;
}

#[tokio::test]
async fn k63_how_long_an_entry_is_held_counts_from_when_it_was_read_not_from_when_it_was_sent() {
    let world = World::new();
    let slow = async |name| world.builder(name).min_idle(ms(3_000)).connect().await.unwrap();
    let (mut first, mut second) = (slow("a").await, slow("b").await);
    world.send("1");
    let sent = Instant::now();
    // Longer than it may be held.
    until("it is old", || sent.elapsed() > ms(3_100)).await;
    let held = one(&mut first).await;
    let looks = world.calls("xautoclaim");
    nothing_until(&mut second, || world.calls("xautoclaim") > looks + 2).await;
    assert_eq!(world.pending(), [("a".to_owned(), 1)]);
    first.settler().settle(&held.0, &held.1, &idempotent_mq::Settlement::Ack).await.unwrap();
}

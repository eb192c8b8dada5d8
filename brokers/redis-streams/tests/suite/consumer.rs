//! The consumer runtime with this source.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use idempotent_core::Policy;
use idempotent_mq::{Consumer, HandlerResult, KeyFrom, Message, MessageHandler, Messages};
use idempotent_redis_streams::{StartPosition, StreamsSource};
use tokio::sync::Semaphore;

use crate::world::{Running, World, ms, until};

/// Handlers that wait until the test releases them.
#[derive(Clone)]
struct Gate {
    open: Arc<Semaphore>,
    runs: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Gate {
    fn shut() -> Self {
        Self { open: Arc::new(Semaphore::new(0)), runs: Arc::default() }
    }

    fn handling(&self) -> MessageHandler {
        let gate = self.clone();
        let key = KeyFrom::message("body", |message: &Message<()>| message.delivery.body.clone());
        Messages::raw().keyed(key).run(move |message: Message<()>| {
            let gate = gate.clone();
            async move {
                gate.runs.lock().unwrap().push(message.delivery.body.clone());
                gate.open.acquire().await.unwrap().forget();
                HandlerResult::Done
            }
        })
    }

    fn runs(&self) -> usize {
        self.runs.lock().unwrap().len()
    }
}

#[tokio::test]
async fn entries_held_for_longer_than_min_idle_run_once() {
    let world = World::new();
    let gate = Gate::shut();
    // Kept alive every 700 ms, so that a busy machine does not look like a dead consumer.
    let slow = async |name| world.builder(name).min_idle(ms(2_100)).connect().await.unwrap();
    for number in 0..8 {
        world.send(number.to_string());
    }
    let first = world.run(slow("a").await, gate.handling(), 8, 6);
    until("six run, and two wait", async || gate.runs() == 6 && world.pending().len() == 8).await;
    let second = world.run(slow("b").await, gate.handling(), 8, 6);
    let (start, looks) = (std::time::Instant::now(), world.calls("xautoclaim"));
    let over = || start.elapsed() > ms(5_000) && world.calls("xautoclaim") > looks + 20;
    until("two and a half min-idles are over, and the second one has looked", async || over()).await;
    assert!(world.pending().iter().all(|pending| *pending == ("a".to_owned(), 1)), "{:?}", world.pending());
    gate.open.add_permits(8);
    until("all are acknowledged", async || world.pending().is_empty()).await;
    assert_eq!((gate.runs(), second.ended().await.unwrap().ended()), (8, 0));
    assert_eq!(first.ended().await.unwrap().acked, 8);
}

#[tokio::test]
async fn a_run_of_a_dead_consumer_is_repeated_after_its_lease() {
    let world = World::new();
    let policy = Policy::new().lease(ms(1_500)).max_run(ms(1_500));
    let executor = idempotent_core::Executor::builder(idempotent_core::MemoryStore::new());
    let executor = executor.policy(idempotent_core::Scene::Mq, policy).build().unwrap();
    let world = World { executor, ..world };
    let gate = Gate::shut();
    world.send("1");
    let first = world.run(world.source("a").await, gate.handling(), 2, 1);
    until("it runs", async || gate.runs() == 1).await;
    first.kill().await;
    let second = world.run(world.source("b").await, gate.handling(), 2, 1);
    until("it runs again", async || gate.runs() == 2).await;
    // The first redelivery met the lease and waited for it in parts.
    let counts = second.counters.counts();
    assert!(counts.deferred >= 1, "{counts:?}");
    gate.open.add_permits(1);
    until("it is acknowledged", async || world.pending().is_empty()).await;
    assert_eq!(second.ended().await.unwrap().acked, 1);
}

#[tokio::test]
async fn two_groups_each_run_the_same_entry() {
    let world = World::new();
    let gate = Gate::shut();
    gate.open.add_permits(2);
    world.send("1");
    let mut running = Vec::new();
    for group in ["billing", "shipping"] {
        let source = StreamsSource::builder(world.server.url(), "orders", group).declare(StartPosition::Beginning);
        let source = source.connect().await.unwrap();
        running.push(Running::new(Consumer::builder(source, group, &world.executor).build(gate.handling()).unwrap()));
    }
    until("both ran", async || running.iter().all(|running| running.counters.counts().acked == 1)).await;
    assert_eq!(gate.runs(), 2);
}

#[tokio::test]
async fn an_id_reused_for_another_body_is_dead_lettered() {
    let world = World::new();
    let source = world.builder("a").id_field("id").connect().await.unwrap();
    let handling =
        Messages::raw().keyed(KeyFrom::message_id()).fingerprint_body().run(|_| async { HandlerResult::Done });
    let running = world.run(source, handling, 8, 6);
    for body in ["one", "one", "two"] {
        let settled = running.counters.counts().ended();
        world.server.command(&["XADD", "orders", "*", "id", "m-1", "body", body]);
        until("it is settled", async || running.counters.counts().ended() == settled + 1).await;
    }
    let counts = running.ended().await.unwrap();
    assert_eq!((counts.acked, counts.dead_lettered), (2, 1));
    assert_eq!(world.entries("orders:dead")[0][3], b"two");
}

#[tokio::test]
async fn failures_that_no_record_counts_end_as_a_dead_letter_too() {
    let world = World::new();
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    // No key is claimed, like in a run whose transaction was rolled back with its record.
    let handling = Messages::raw().annotated(move |_: Message<()>| {
        counted.fetch_add(1, SeqCst);
        async { Err::<(), _>("no stock") }
    });
    world.send("x");
    let running = world.run(world.source("a").await, handling, 8, 6);
    until("it is a dead letter", async || running.counters.counts().dead_lettered == 1).await;
    running.ended().await.unwrap();
    assert_eq!(runs.load(SeqCst), 17);
    assert_eq!(world.server.command(&["EXISTS", "orders:attempts:billing"]).text(), "0", "no mark is left");
}

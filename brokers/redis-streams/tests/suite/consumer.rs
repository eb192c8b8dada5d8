//! The consumer runtime with this source.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use idempotent_mq::{Consumer, Message, Messages};
use idempotent_redis_streams::{StartPosition, StreamsSource};
use idempotent_testkit::broker::testing::counting;

use crate::world::{Running, World, until};

#[tokio::test]
async fn two_groups_each_run_the_same_entry() {
    let world = World::new();
    let (handling, runs) = counting();
    world.send("1");
    let mut running = Vec::new();
    for group in ["billing", "shipping"] {
        let source = StreamsSource::builder(world.server.url(), "orders", group).declare(StartPosition::Beginning);
        let source = source.connect().await.unwrap();
        running.push(Running::new(Consumer::builder(source, group, &world.executor).build(handling.clone()).unwrap()));
    }
    until("both ran", async || running.iter().all(|running| running.counters.counts().acked == 1)).await;
    assert_eq!(runs.load(SeqCst), 2);
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

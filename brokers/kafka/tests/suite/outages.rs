//! Cut connections, and a broker that stops for a while.
use std::sync::atomic::Ordering::SeqCst;

use crate::world::{World, counting, until};

#[tokio::test]
async fn a_consumer_continues_after_its_connections_were_cut_often() {
    let world = World::new(1).await;
    let (handling, runs) = counting();
    let running = world.run(world.source().await, handling);
    for number in 0..10 {
        world.send(&number.to_string()).await;
        until("the message ran", async || runs.load(SeqCst) > number).await;
        world.between.cut_all();
    }
    until("all messages are committed", async || world.committed(0) == Some(10)).await;
    running.ended().await.unwrap();
    assert_eq!(runs.load(SeqCst), 10);
}

#[tokio::test]
async fn a_consumer_continues_after_its_broker_refused_connections() {
    let world = World::new(1).await;
    let (handling, runs) = counting();
    let running = world.run(world.source().await, handling);
    world.send("before").await;
    until("the first message ran", async || runs.load(SeqCst) == 1).await;
    world.between.refuse();
    world.between.cut_all();
    world.between.listen();
    world.send("after").await;
    until("both are committed", async || world.committed(0) == Some(2)).await;
    running.ended().await.unwrap();
    assert_eq!(runs.load(SeqCst), 2);
}

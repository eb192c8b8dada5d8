//! Cut connections, and a broker that stops for a while.
use crate::world::{World, counting};

#[tokio::test]
async fn a_consumer_continues_after_its_connections_were_cut_often() {
    let world = World::new(1).await;
    let (handling, mut runs) = counting();
    let running = world.run(world.source().await, handling);
    for number in 0..10 {
        world.send(&number.to_string()).await;
        runs.until(number + 1).await;
        world.between.cut_all();
    }
    world.until_committed(0, 10).await;
    running.ended().await.unwrap();
    assert_eq!(runs.number(), 10);
}

#[tokio::test]
async fn a_consumer_continues_after_its_broker_refused_connections() {
    let world = World::new(1).await;
    let (handling, mut runs) = counting();
    let running = world.run(world.source().await, handling);
    world.send("before").await;
    runs.until(1).await;
    world.between.refuse();
    world.between.cut_all();
    world.between.listen();
    world.send("after").await;
    world.until_committed(0, 2).await;
    running.ended().await.unwrap();
    assert_eq!(runs.number(), 2);
}

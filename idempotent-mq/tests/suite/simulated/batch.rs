//! Several deliveries received at once: each is claimed and settled by itself.
use idempotent_core::Policy;
use idempotent_mq::{HandlerResult, Settlement};

use crate::world::{Job, World, ms, secs};

#[tokio::test]
async fn each_message_of_a_batch_is_settled_separately() {
    let world = World::new();
    let policy = Policy::new().in_flight_delay(secs(1));
    let earlier = Job::ok(&world, ms(10));
    let first = world.consume(policy, earlier.by_id()).await;
    world.broker.send("b", "{}");
    world.clock.advance(ms(20)).await;
    first.kill().await;
    // Another process has `c` in hand.
    let slow = Job::ok(&world, secs(5));
    let second = world.consume(policy, slow.by_id()).await;
    world.broker.send("c", "{}");
    world.clock.advance(ms(10)).await;
    second.kill().await;
    let job = Job::ok(&world, ms(10));
    let process = world.consume(policy, job.by_id()).await;
    let before = world.broker.events().len();
    world.broker.send_all(&["a", "b", "c", "d", "a"]);
    world.clock.advance(secs(2)).await;
    let ids: Vec<_> = job.seen().into_iter().filter_map(|seen| seen.id).collect();
    assert_eq!(ids, ["a", "d"]);
    let settled = |name: &str| world.broker.settlements(name);
    assert!(world.broker.is_acked("b") && world.broker.is_acked("d") && world.broker.is_acked("a"));
    // The second `a` met the first one in flight, came back and was acknowledged.
    let acks = settled("a").into_iter().filter(|settlement| *settlement == Settlement::Ack).count();
    assert_eq!(acks, 2);
    assert!(matches!(settled("c").last(), Some(Settlement::Retry(_))), "{:?}", settled("c"));
    assert!(world.broker.events().len() > before && process.counts().acked == 4);
}

#[tokio::test]
async fn for_a_batch_of_duplicates_the_handler_is_not_called() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    world.consume(Policy::new(), job.by_id()).await;
    world.broker.send_all(&["a", "b"]);
    world.clock.advance(ms(50)).await;
    assert_eq!(job.runs(), 2);
    world.broker.send_all(&["a", "b", "b", "a"]);
    world.clock.advance(ms(50)).await;
    assert_eq!((job.runs(), world.broker.left()), (2, 0));
}

/// For a broker that acknowledges up to a position, an adapter commits the longest settled prefix.
#[tokio::test]
async fn messages_that_a_prefix_commit_delivers_again_are_acknowledged_without_a_run() {
    let world = World::new();
    let job = Job::ends(&world, ms(10), |run| match run {
        2 => HandlerResult::Again { after: None, error: "no stock".into() },
        _ => HandlerResult::Done,
    });
    let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.concurrency(1)).await;
    world.broker.send_all(&["a", "b", "c"]);
    world.clock.advance(ms(50)).await;
    // `a` and `c` are done, `b` is not: the prefix ends before `b`, so `c` comes again with it.
    assert_eq!(job.runs(), 3);
    world.broker.send("c", "{}");
    world.clock.advance(secs(2)).await;
    let ids: Vec<_> = job.seen().into_iter().filter_map(|seen| seen.id).collect();
    assert_eq!((ids, process.counts().acked), (["a", "b", "c", "b"].map(str::to_owned).to_vec(), 4));
}

#[tokio::test]
async fn a_message_in_flight_does_not_delay_the_messages_after_it() {
    let world = World::new();
    let slow = Job::ok(&world, secs(5));
    let first = world.consume(Policy::new(), slow.by_id()).await;
    world.broker.send("a", "{}");
    world.clock.advance(ms(10)).await;
    first.kill().await;
    let job = Job::ok(&world, ms(10));
    world.consume_by(Policy::new(), job.by_id(), |builder| builder.concurrency(1)).await;
    world.broker.send_all(&["a", "b", "c"]);
    world.clock.advance(ms(50)).await;
    assert!(world.broker.is_acked("b") && world.broker.is_acked("c") && !world.broker.is_acked("a"));
}

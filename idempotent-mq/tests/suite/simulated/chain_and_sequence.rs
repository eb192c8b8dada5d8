//! Promises that `after = …` and `sequence = …` share about a user's numbers, over several consumers.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Executor, Identity, Policy, Scene};
use idempotent_macros::idempotent;
use idempotent_mq::MessageHandler;

use crate::simulated::chain;
use crate::simulated::points::{Failed, Log, Points, count, handling, send, send_bad, skip, three};
use crate::world::{World, secs};

#[idempotent(
    key = (&points.user, points.number),
    sequence = (&points.user, points.number),
    scope = "points",
    max_retries = 0,
    crate = idempotent_core
)]
async fn credit(points: Points, log: Log) -> Result<(), Failed> {
    log.credit(&points).await
}

/// The option by which a handler orders the numbers of a user.
#[derive(Clone, Copy, Debug)]
enum Order {
    Chain,
    Sequence,
}

impl Order {
    const BOTH: [Self; 2] = [Self::Chain, Self::Sequence];

    fn handling(self, log: &Log) -> MessageHandler {
        match self {
            Self::Chain => handling(log, chain::credit),
            Self::Sequence => handling(log, credit),
        }
    }

    /// Registers the numbers of a sequence, as its producer does before it sends them.
    async fn register(self, world: &World, user: &str, numbers: &[u64]) {
        if let Self::Chain = self {
            return;
        }
        let producer = Executor::builder(world.store.clone()).clock(Arc::new(world.clock.clone())).build().unwrap();
        producer.register(&Identity::new(Scene::Mq, "points", user), numbers.iter().copied()).await.unwrap();
    }

    /// Returns how much later than it could a waiting message may run.
    const fn slack(self) -> Duration {
        match self {
            Self::Chain => secs(5),
            Self::Sequence => secs(20),
        }
    }
}

#[tokio::test]
async fn numbers_3_2_1_of_one_user_to_3_consumers_run_as_1_2_3() {
    for order in Order::BOTH {
        let world = World::new();
        let log = Log::of(&world);
        let processes = three(&world, Policy::new(), || order.handling(&log)).await;
        order.register(&world, "a", &[1, 2, 3]).await;
        send(&world, "a", &[3, 2, 1]);
        world.clock.advance(secs(60)).await;
        assert_eq!((log.ran(), world.broker.left()), ("a1 a2 a3".to_owned(), 0), "{order:?}");
        // What was put off had no attempt taken off it: each gets one run, and none died.
        assert!(count(&processes, "waiting") >= 2, "{order:?}");
        assert!(world.broker.dead().is_empty(), "{order:?}");
    }
}

#[tokio::test]
async fn a_consumer_that_is_killed_while_3_waits_loses_nothing() {
    for order in Order::BOTH {
        let world = World::new();
        let log = Log::of(&world);
        let first = world.consume(Policy::new(), order.handling(&log)).await;
        order.register(&world, "a", &[1, 2, 3]).await;
        send(&world, "a", &[3]);
        world.clock.advance(secs(5)).await;
        assert_eq!((log.ran(), world.broker.left()), (String::new(), 1), "{order:?}");
        first.kill().await;
        world.broker.cut();
        world.consume(Policy::new(), order.handling(&log)).await;
        send(&world, "a", &[2, 1]);
        world.clock.advance(secs(60)).await;
        assert_eq!((log.ran(), world.broker.left()), ("a1 a2 a3".to_owned(), 0), "{order:?}");
    }
}

#[tokio::test]
async fn a_dead_2_holds_3_is_reported_and_releases_it_after_its_time_and_others_are_not_delayed() {
    for order in Order::BOTH {
        let world = World::new();
        let log = Log::of(&world);
        let processes = three(&world, skip(), || order.handling(&log)).await;
        order.register(&world, "a", &[1, 2, 3]).await;
        order.register(&world, "b", &[1, 2]).await;
        send_bad(&world, "a", 2);
        send(&world, "a", &[3, 1]);
        send(&world, "b", &[2, 1]);
        world.clock.advance(order.slack()).await;
        assert_eq!(world.broker.dead().len(), 1, "{order:?}: a2");
        let so_far = log.ran();
        assert!(so_far.contains("a1") && !so_far.contains("a3"), "{order:?}: {so_far}");
        let of_b: Vec<_> = so_far.split(' ').filter(|ran| ran.starts_with('b')).collect();
        assert_eq!(of_b, ["b1", "b2"], "{order:?}: another user is not kept waiting: {so_far}");
        assert!(count(&processes, "held") >= 1, "{order:?}: somebody is told");
        world.clock.advance(secs(70)).await;
        assert!(log.ran().ends_with("a3"), "{order:?}: {}", log.ran());
        assert_eq!(world.broker.left(), 0, "{order:?}");
    }
}

#[tokio::test]
async fn a_number_that_is_never_sent_holds_3_until_its_time_is_over() {
    for order in Order::BOTH {
        let world = World::new();
        let log = Log::of(&world);
        three(&world, skip(), || order.handling(&log)).await;
        order.register(&world, "a", &[1, 2, 3]).await;
        send(&world, "a", &[1, 3]);
        world.clock.advance(secs(59)).await;
        assert_eq!(log.ran(), "a1", "{order:?}");
        world.clock.advance(order.slack()).await;
        assert_eq!((log.ran(), world.broker.left()), ("a1 a3".to_owned(), 0), "{order:?}");
        // Sent after all it comes late, and is not lost.
        send(&world, "a", &[2]);
        world.clock.advance(secs(5)).await;
        assert_eq!((log.ran(), world.broker.left()), ("a1 a3 a2".to_owned(), 0), "{order:?}");
    }
}

//! The largest task, and what its retry and its dead letter add.
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Delay as _, DelayErrorKind, Redrive, Retry, Scheduled, Settlement};
use idempotent_sqlx::{DelayTableDeadLetters, ScheduledTask};

use super::backend;
use super::world::{Hand, World};

fn task(bytes: usize) -> ScheduledTask {
    ScheduledTask::at("k", Timestamp(0), vec![7; bytes]).header("trace", "abc")
}

#[tokio::test]
async fn a_task_of_the_size_limit_is_retried_dead_lettered_and_redriven_and_one_byte_more_is_refused() {
    let world = World::new().await;
    let fits = async |bytes| {
        let is_stored = world.work.put(&task(bytes)).await.is_ok();
        world.work.cancel("k").await.unwrap();
        is_stored
    };
    let most = backend::largest_body(&world.pool, fits).await;
    let refused = world.work.put(&task(most + 1)).await.unwrap_err();
    assert_eq!(refused.kind(), DelayErrorKind::Refused, "{refused}");
    assert!(refused.to_string().contains(backend::TOO_LARGE), "{refused}");
    assert_eq!(world.counts().await, Default::default());
    let mut hand = Hand::of(&world);
    let reason = "x".repeat(4_000);
    for bytes in [most - 1, most] {
        assert_eq!(world.work.put(&task(bytes)).await.unwrap(), Scheduled::New);
        let mut retry = Retry::after(Duration::ZERO, Timestamp(1));
        retry.reason = reason.clone().into();
        let held = hand.take(1).await.remove(0);
        hand.settle(&held, Settlement::Retry(retry)).await;
        let held = hand.take(1).await.remove(0);
        hand.settle(&held, Settlement::DeadLetter(DeadLetter::because(reason.clone(), Timestamp(9)))).await;
        let redriven = Redrive::new().run(&mut DelayTableDeadLetters::new(&world.work)).await;
        assert_eq!((redriven.put_back, redriven.passed_by), (1, 0), "{redriven:?}");
        let held = hand.take(1).await.remove(0);
        assert!(held.0.body.len() == bytes && held.0.headers.all("trace").eq([&b"abc"[..]]));
        hand.settle(&held, Settlement::Ack).await;
    }
}

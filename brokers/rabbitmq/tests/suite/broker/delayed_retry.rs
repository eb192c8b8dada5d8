//! Deferrals that the broker delays. A broker that cannot do this refuses the queue, which each test then checks.
use std::sync::Arc;
use std::time::Instant;

use idempotent_core::{MemoryStore, Policy, Timestamp};
use idempotent_mq::{Delivery, HandlerResult, Retry, Settlement, SourceErrorKind};
use idempotent_rabbitmq::{Queue, RabbitTag, Topology};
use tokio::sync::Notify;

use crate::broker::world::{Log, ManualSource, Process, SERVER, World, executor, ms, named};

/// Returns a queue whose deferred messages return after 300 ms, or `None` if the broker refuses the queue.
async fn delayed(world: &World) -> Option<Queue> {
    let queue = Queue::quorum(&world.queue).delayed_retry(ms(300), ms(2_000));
    let version = SERVER.eval("rabbit_misc:version().");
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap());
    if (numbers.next(), numbers.next()) >= (Some(4), Some(3)) {
        return Some(queue);
    }
    for refused in [
        world.source_of(queue.clone()).declare().await.unwrap_err(),
        Topology::new().queue(queue).declare(&SERVER.url()).await.unwrap_err(),
    ] {
        assert_eq!(refused.kind(), SourceErrorKind::Fatal);
        assert!(refused.to_string().contains("needs RabbitMQ 4.3; remove delayed_retry()"), "{version}: {refused}");
    }
    assert_eq!(world.consumers(&world.queue).await, None, "the queue was declared");
    None
}

fn retry(attempt: u32, after: u64) -> Settlement {
    let mut retry = Retry::after(ms(after), Timestamp(17));
    retry.attempt = attempt;
    Settlement::Retry(retry)
}

#[tokio::test]
async fn a_deferral_waits_in_the_queue_and_is_no_delivery_and_a_failed_run_is_a_copy() {
    let world = World::new("delayed-retry").await;
    let Some(queue) = delayed(&world).await else { return };
    let mut source = world.opened(queue.clone()).await;
    world.send(b"body", named("m").with_priority(3)).await;
    let held = source.next().await;
    let deferred = Instant::now();
    // A settlement that is repeated changes nothing.
    source.settle(&held, retry(1, 100)).await.unwrap();
    let held = settled(&mut source, held, retry(1, 100)).await;
    assert!(deferred.elapsed() >= ms(300), "after {:?}", deferred.elapsed());
    assert_eq!((held.0.attempt, held.0.delivered, &held.0.body[..]), (Some(1), Some(1), &b"body"[..]));
    assert_eq!(world.consumers("delayed-retry.retry.100").await, None, "a copy");
    // A copy has the number of the attempt, and is deferred in the same way.
    let held = settled(&mut source, held, retry(2, 100)).await;
    assert!(world.consumers("delayed-retry.retry.100").await.is_some(), "no copy");
    let held = settled(&mut source, held, retry(2, 2_000)).await;
    assert_eq!((held.0.attempt, held.0.delivered), (Some(2), Some(1)));
    assert_eq!(world.consumers("delayed-retry.retry.2000").await, None, "a copy");
    // The broker would deliver the message too early.
    let held = settled(&mut source, held, retry(2, 2_500)).await;
    assert!(world.consumers("delayed-retry.retry.3000").await.is_some(), "no copy");
    // A crash is a delivery, and is not delayed.
    drop((source, held));
    let mut source = ManualSource(world.source_of(queue), world.queue.clone());
    let held = source.next().await;
    assert_eq!((held.0.attempt, held.0.delivered), (Some(2), Some(2)));
    let held = settled(&mut source, held, retry(2, 100)).await;
    assert_eq!(held.0.delivered, Some(2));
    source.settle(&held, Settlement::Ack).await.unwrap();
}

/// Settles a delivery, and returns the next one.
async fn settled(source: &mut ManualSource, held: (Delivery, RabbitTag), how: Settlement) -> (Delivery, RabbitTag) {
    source.settle(&held, how).await.unwrap();
    source.next().await
}

#[tokio::test]
async fn a_duplicate_in_flight_is_deferred_without_a_copy() {
    let world = World::new("delayed-retry.duplicate").await;
    let Some(queue) = delayed(&world).await else { return };
    let (log, open) = (Arc::new(Log::default()), Arc::new(Notify::new()));
    let gate = open.clone();
    let handling = log.by_id(move |_| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            HandlerResult::Done
        }
    });
    let source = world.source_of(queue);
    source.declare().await.unwrap();
    world.send_id("a").await;
    world.send_id("a").await;
    let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
    // The limit of deliveries does not count deferrals.
    let process = Process::start(source, "billing", &executor, handling, |b| b.max_deliveries(2));
    process.until("four deferrals", |counts| counts.deferred >= 4).await;
    open.notify_one();
    process.until("both are acknowledged", |counts| counts.acked == 2).await;
    let counts = process.stop().await;
    assert_eq!((log.runs(), counts.dead_lettered, counts.source_errors), (1, 0, 0));
    assert_eq!(world.consumers("delayed-retry.duplicate.retry.100").await, None, "a copy");
}

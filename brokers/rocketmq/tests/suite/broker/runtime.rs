//! The source with a consumer.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::Executor;
use idempotent_mq::{
    Consumer, ConsumerCounters, ConsumerCounts, KeyFrom, MessageHandler, Messages, OutboundMessage, SourceError,
};
use idempotent_rocketmq::RocketSource;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::broker::world::{World, executor, until, within};

struct Process {
    counters: ConsumerCounters,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<ConsumerCounts, SourceError>>,
}

impl Process {
    fn start(source: RocketSource, executor: &Executor, handling: MessageHandler) -> Self {
        let builder = Consumer::builder(source, "billing", executor).grace(Duration::from_secs(5));
        let consumer = builder.build(handling).unwrap();
        let (counters, (stop, stopped)) = (consumer.counters(), oneshot::channel::<()>());
        let task = tokio::spawn(consumer.run(async move { drop(stopped.await) }));
        Self { counters, stop, task }
    }

    async fn until(&self, what: &str, holds: impl Fn(&ConsumerCounts) -> bool) {
        until(what, async || holds(&self.counters.counts()).then_some(())).await;
    }

    async fn stop(self) -> ConsumerCounts {
        self.stop.send(()).unwrap();
        within("the drain", self.task).await.unwrap().unwrap()
    }
}

fn once(runs: &Arc<AtomicU32>) -> MessageHandler {
    let runs = runs.clone();
    Messages::raw().keyed(KeyFrom::business_key()).run(move |_| {
        runs.fetch_add(1, SeqCst);
        async { Ok::<_, &str>(()) }
    })
}

#[tokio::test]
async fn only_the_failed_message_of_a_batch_is_redelivered() {
    let world = World::new("runtime-2").await;
    let log = Arc::<Mutex<Vec<String>>>::default();
    let recorded = log.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
        let id = message.delivery.id.clone().unwrap();
        let fails = id == "b" && message.delivery.attempt == Some(1);
        recorded.lock().unwrap().push(id);
        async move { if fails { Err("not yet") } else { Ok(()) } }
    });
    for id in ["a", "b", "c", "d"] {
        world.publish(world.message(id, "b")).await;
    }
    let process = Process::start(world.builder().batch(8).build().unwrap(), &executor(), handling);
    process.until("all are done", |counts| counts.acked == 4).await;
    world.emptied().await;
    let counts = process.stop().await;
    let mut log = log.lock().unwrap().clone();
    log.sort();
    assert_eq!((log.concat().as_str(), counts.retried, counts.received), ("abbcd", 1, 5));
}

#[tokio::test]
async fn a_message_on_two_topics_with_one_business_key_runs_once_and_both_copies_are_acknowledged() {
    let world = World::new("runtime-3").await;
    let (runs, executor) = (Arc::new(AtomicU32::new(0)), executor());
    let other = || RocketSource::builder(world.server.url(), "orders-too", "billing-too").build().unwrap();
    other().declare(1).await.unwrap();
    let other = RocketSource::connect(world.server.url(), "orders-too", "billing-too").await.unwrap();
    let processes =
        [Process::start(world.source(), &executor, once(&runs)), Process::start(other, &executor, once(&runs))];
    let order = |topic: &str| OutboundMessage::new(topic, "m", "b").business_key("order-17");
    world.publish(order(&world.topic)).await;
    world.publish(order("orders-too")).await;
    for process in processes {
        process.until("it is done", |counts| counts.acked == 1).await;
        process.stop().await;
    }
    assert_eq!(runs.load(SeqCst), 1);
}

#[tokio::test]
async fn an_expired_message_does_not_run() {
    let world = World::new("runtime-4").await;
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handling = Messages::json().keyed(KeyFrom::message_id()).run(move |message: idempotent_mq::Message<u64>| {
        counted.fetch_add(u32::try_from(message.body).unwrap(), SeqCst);
        async { Ok::<_, &str>(()) }
    });
    let source = world.builder().expires_at_header("end").build().unwrap();
    let process = Process::start(source, &executor(), handling);
    world.publish(world.message("old", "5").header("end", "1700000000000")).await;
    world.publish(world.message("good", "2").header("end", "99000000000000")).await;
    process.until("both are settled", |counts| counts.ended() == 2).await;
    assert_eq!(runs.load(SeqCst), 2);
    let counts = process.stop().await;
    assert_eq!((counts.expired, counts.acked, counts.dead_lettered), (1, 1, 0));
}

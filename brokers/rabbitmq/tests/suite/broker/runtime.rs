//! The consumer runtime on a queue.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use idempotent_core::{MemoryStore, Policy};
use idempotent_mq::{HandlerResult, KeyFrom, Messages};
use idempotent_rabbitmq::Queue;
use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::{AMQPValue, FieldTable};
use tokio::sync::Notify;

use crate::broker::world::{Log, Process, World, again, done, executor, ms, named, until};

fn header(headers: &FieldTable, name: &str) -> Option<AMQPValue> {
    headers.inner().get(name).cloned()
}

async fn is_dead_lettered_after_its_attempts(name: &str, queue: Queue) {
    let world = World::new(name).await;
    let executor = executor(&Arc::new(MemoryStore::new()), Policy::new().max_retries(2));
    let log = Arc::new(Log::default());
    let process = Process::start(world.source_of(queue), "billing", &executor, log.by_id(again), |b| b);
    world.subscribed().await;
    world.send_id("m").await;
    let dead = world.dead().await;
    let attempts: Vec<_> = log.seen().into_iter().map(|seen| seen.attempts).collect();
    assert_eq!(attempts, [1, 2, 3].map(|n| (Some(n), Some(n))));
    let times: Vec<_> = log.seen().into_iter().map(|seen| seen.at).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= ms(100)));
    let headers = dead.properties.headers().clone().unwrap();
    assert_eq!(header(&headers, "x-idempotent-attempts"), Some(AMQPValue::LongLongInt(3)));
    assert_eq!(&dead.data[..], b"{}");
    // A late duplicate does not run.
    world.send_id("m").await;
    world.dead().await;
    assert_eq!(log.runs(), 3);
    let counts = process.stop().await;
    assert_eq!((counts.retried, counts.dead_lettered, counts.unsettled), (2, 2, 0));
}

#[tokio::test]
async fn a_message_that_always_fails_is_dead_lettered_after_its_attempts_by_a_classic_queue() {
    is_dead_lettered_after_its_attempts("attempts-classic", Queue::classic("attempts-classic")).await;
}

#[tokio::test]
async fn a_message_that_always_fails_is_dead_lettered_after_its_attempts_by_a_quorum_queue() {
    is_dead_lettered_after_its_attempts("attempts-quorum", Queue::quorum("attempts-quorum")).await;
}

#[tokio::test]
async fn a_duplicate_in_flight_is_deferred_without_an_attempt_and_acknowledged_after_the_first() {
    let world = World::new("in-flight").await;
    world.declare("in-flight").await;
    let store = Arc::new(MemoryStore::new());
    let (log, open) = (Arc::new(Log::default()), Arc::new(Notify::new()));
    let start = |log: &Arc<Log>| {
        let open = open.clone();
        let handling = log.by_id(move |_| {
            let open = open.clone();
            async move {
                open.notified().await;
                HandlerResult::Done
            }
        });
        let executor = executor(&store, Policy::new().max_retries(1));
        Process::start(world.source(), "billing", &executor, handling, |b| b.concurrency(1).prefetch(1))
    };
    let processes = [start(&log), start(&log)];
    world.send_id("m").await;
    until("it runs", async || (log.runs() == 1).then_some(())).await;
    world.send_id("m").await;
    let deferred = || processes.iter().map(|process| process.counts().deferred).sum::<u64>();
    // More deferrals than attempts.
    until("deferrals", async || (deferred() >= 4).then_some(())).await;
    open.notify_one();
    let acked = || processes.iter().map(|process| process.counts().acked).sum::<u64>();
    until("both are done", async || (acked() == 2).then_some(())).await;
    assert_eq!(log.runs(), 1);
    assert_eq!(log.seen()[0].attempts, (Some(1), Some(1)));
    for process in processes {
        let counts = process.stop().await;
        assert_eq!((counts.retried, counts.dead_lettered, counts.unsettled), (0, 0, 0));
    }
    assert_eq!(world.count("in-flight").await, 0);
}

#[tokio::test]
async fn a_stopped_consumer_ends_its_runs_and_leaves_the_rest_to_the_next_consumer() {
    let world = World::new("drain").await;
    world.declare("drain").await;
    let store = Arc::new(MemoryStore::new());
    let log = Arc::new(Log::default());
    let (inner, open) = (log.clone(), Arc::new(Notify::new()));
    let gate = open.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
        inner.note(&message);
        let gate = gate.clone();
        async move {
            match message.delivery.id.as_deref() {
                Some("long") => std::future::pending().await,
                _ => gate.notified().await,
            }
            HandlerResult::Done
        }
    });
    let executor_1 = executor(&store, Policy::new());
    let process = Process::start(world.source(), "billing", &executor_1, handling, |b| {
        b.concurrency(2).prefetch(3).grace(ms(1_000))
    });
    for id in ["short", "long", "waits", "not taken"] {
        world.send_id(id).await;
    }
    until("two run", async || (log.runs() == 2).then_some(())).await;
    process.until("three are held", |counts| counts.received == 3).await;
    // The broker itself holds back what exceeds the prefetch limit.
    until("one is left there", async || (world.count("drain").await == 1).then_some(())).await;
    let stopping = tokio::spawn(process.stop());
    open.notify_one();
    let counts = stopping.await.unwrap();
    assert_eq!((counts.acked, counts.given_back, counts.unsettled), (1, 2, 0));
    // Three messages are left. One of them was interrupted and has a lease.
    until("three wait", async || (world.count("drain").await == 3).then_some(())).await;
    let second = Arc::new(Log::default());
    let executor_2 = executor(&store, Policy::new());
    let process = Process::start(world.source(), "billing", &executor_2, second.by_id(done), |b| b);
    process.until("two are done, one is in flight", |counts| counts.acked == 2 && counts.deferred >= 1).await;
    let mut ids: Vec<_> = second.seen().into_iter().filter_map(|seen| seen.id).collect();
    ids.sort();
    assert_eq!(ids, ["not taken", "waits"]);
    process.stop().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_dead_lettered_unchanged_and_not_decoded() {
    let world = World::new("large").await;
    world.declare("large").await;
    let (executor, log) = (executor(&Arc::new(MemoryStore::new()), Policy::new()), Arc::new(Log::default()));
    let process = Process::start(world.source(), "billing", &executor, log.by_id(done), |builder| builder.max_body(4));
    world.subscribed().await;
    world.send(b"five!", named("large")).await;
    world.send(b"four", named("fits")).await;
    assert_eq!(&world.dead().await.data[..], b"five!");
    process.until("the other one is acknowledged", |counts| counts.acked == 1).await;
    let counts = process.stop().await;
    assert_eq!((counts.undecodable, counts.retried, counts.dead_lettered, log.runs()), (1, 0, 1, 1));
}

#[tokio::test]
async fn an_undecodable_body_is_dead_lettered_at_once_and_an_expired_message_is_dropped() {
    let world = World::new("poison").await;
    world.declare("poison").await;
    let ran = Arc::new(AtomicBool::new(false));
    let seen = ran.clone();
    let handling = Messages::<u32>::json().keyed(KeyFrom::message_id()).run(move |_| {
        seen.store(true, SeqCst);
        async { HandlerResult::Done }
    });
    let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
    let source =
        idempotent_rabbitmq::RabbitSource::builder(&crate::broker::world::SERVER.url(), Queue::classic("poison"))
            .expires_at_header("end");
    let process = Process::start(source.build().unwrap(), "billing", &executor, handling, |b| b);
    world.subscribed().await;
    world.send(b"\xff\x00 17", named("m")).await;
    assert_eq!(&world.dead().await.data[..], b"\xff\x00 17");
    let mut headers = FieldTable::default();
    headers.insert("end".into(), AMQPValue::Timestamp(1_000));
    world.send(b"17", named("n").with_headers(headers)).await;
    process.until("it is dropped", |counts| counts.expired == 1).await;
    let counts = process.stop().await;
    assert_eq!((counts.undecodable, counts.retried, counts.dead_lettered), (1, 0, 1));
    assert!(!ran.load(SeqCst));
}

#[tokio::test]
async fn a_message_on_two_queues_with_one_business_key_runs_once_and_both_are_acknowledged() {
    let world = World::new("twice").await;
    let (store, log) = (Arc::new(MemoryStore::new()), Arc::new(Log::default()));
    let mut processes = Vec::new();
    for queue in ["twice.a", "twice.b"] {
        world.declare(queue).await;
        let executor = executor(&store, Policy::new());
        let handling = log.keyed(KeyFrom::header("order"), done);
        processes.push(Process::start(world.source_of(Queue::classic(queue)), "billing", &executor, handling, |b| b));
        let mut headers = FieldTable::default();
        headers.insert("order".into(), AMQPValue::LongLongInt(17));
        world.send_to("", queue, b"{}", named(queue).with_headers(headers)).await;
    }
    for process in &processes {
        process.until("it is acknowledged", |counts| counts.acked == 1).await;
    }
    assert_eq!(log.runs(), 1);
}

#[tokio::test]
async fn a_broadcast_to_two_groups_runs_once_in_each() {
    let world = World::new("broadcast").await;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let none = FieldTable::default;
    world.admin.exchange_declare("news".into(), ExchangeKind::Fanout, durable, none()).await.unwrap();
    let (store, log) = (Arc::new(MemoryStore::new()), Arc::new(Log::default()));
    let mut processes = Vec::new();
    for queue in ["news.billing", "news.mail"] {
        world.declare(queue).await;
        let bind = QueueBindOptions::default();
        world.admin.queue_bind(queue.into(), "news".into(), "".into(), bind, none()).await.unwrap();
        let executor = executor(&store, Policy::new());
        let source = world.source_of(Queue::classic(queue));
        processes.push(Process::start(source, queue, &executor, log.by_id(done), |b| b));
    }
    for _ in 0..2 {
        world.send_to("news", "", b"{}", named("m")).await;
    }
    for process in &processes {
        process.until("both are acknowledged", |counts| counts.acked == 2).await;
    }
    assert_eq!(log.runs(), 2);
}

//! The consumer runtime on a queue.
use std::sync::Arc;

use idempotent_core::{MemoryStore, Policy};
use idempotent_mq::{HandlerResult, KeyFrom, Messages};
use idempotent_rabbitmq::{Queue, RabbitSource};
use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::{AMQPValue, FieldTable};
use tokio::sync::Notify;

use crate::broker::world::{Log, Process, SERVER, World, done, executor, ms, named, until};

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
        b.concurrency(2).prefetch(3).claim_ahead(0).grace(ms(1_000))
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
async fn an_expired_message_is_dropped_without_a_run() {
    let world = World::new("poison").await;
    world.declare("poison").await;
    let log = Arc::new(Log::default());
    let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
    let source = RabbitSource::builder(SERVER.url(), Queue::classic("poison")).expires_at_header("end");
    let process = Process::start(source.build().unwrap(), "billing", &executor, log.by_id(done), |b| b);
    world.subscribed().await;
    let mut headers = FieldTable::default();
    headers.insert("end".into(), AMQPValue::Timestamp(1_000));
    world.send(b"17", named("n").with_headers(headers)).await;
    process.until("it is dropped", |counts| counts.expired == 1).await;
    process.stop().await;
    assert_eq!(log.runs(), 0);
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

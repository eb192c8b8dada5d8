//! Failed connections and a crashed broker.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use idempotent_core::{MemoryStore, Policy};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_mq::{HandlerResult, KeyFrom, Messages, OutboundMessage, Settlement};
use idempotent_rabbitmq::{Queue, RabbitPublisher, RabbitSource};
use tokio::sync::Notify;

use crate::broker::world::{Log, Process, SERVER, World, again, done, executor, ms, named, until, within};

/// The first bytes of `basic.ack` on the channel of the subscription: class 60, method 80.
const ACK: [u8; 4] = [0, 60, 0, 80];

#[tokio::test]
async fn a_message_with_a_lost_acknowledgement_is_acknowledged_at_redelivery_without_a_second_run() {
    let world = World::new("lost-ack").await;
    let proxy = Proxy::start(&SERVER.address()).await;
    let url = format!("amqp://guest:guest@{}/%2f", proxy.address());
    let log = Arc::new(Log::default());
    let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
    let source = RabbitSource::builder(&url, Queue::classic("lost-ack")).build().unwrap();
    let process = Process::start(source, "billing", &executor, log.by_id(done), |b| b);
    world.subscribed().await;
    for cuts in 1..=3 {
        proxy.fail_next_with(ACK, Fault::CutBeforeSend);
        world.send_id(&format!("m{cuts}")).await;
        proxy.until_met(cuts).await;
        process.until("it is acknowledged again", |counts| counts.acked == 2 * cuts).await;
    }
    let counts = process.stop().await;
    assert_eq!((log.runs(), counts.received, counts.unsettled), (3, 6, 0));
    assert_eq!(world.count("lost-ack").await, 0);
}

#[tokio::test]
async fn a_run_continues_after_its_connection_closes_and_the_next_connection_acknowledges_its_message() {
    let mut world = World::alone("closed").await;
    world.declare("closed").await;
    let (log, open) = (Arc::new(Log::default()), Arc::new(Notify::new()));
    let gate = open.clone();
    let handling = log.by_id(move |_| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            HandlerResult::Done
        }
    });
    let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
    let process = Process::start(world.source(), "billing", &executor, handling, |b| b);
    world.send("m".as_bytes(), named("m").with_delivery_mode(2)).await;
    until("it runs", async || (log.runs() == 1).then_some(())).await;
    tokio::task::spawn_blocking(|| SERVER.close_all_connections()).await.unwrap();
    process.until("it came again, and is in flight", |counts| counts.deferred >= 1).await;
    open.notify_one();
    process.until("it is acknowledged", |counts| counts.acked == 1).await;
    let counts = process.stop().await;
    assert_eq!((log.runs(), counts.revoked, counts.unsettled), (1, 1, 0));
    world.reconnect().await;
    assert_eq!(world.count("closed").await, 0);
}

#[tokio::test]
async fn held_and_delayed_messages_survive_a_killed_broker_and_run_once() {
    let mut world = World::alone("killed").await;
    world.declare("killed").await;
    let (log, open) = (Arc::new(Log::default()), Arc::new(Notify::new()));
    let gate = open.clone();
    let handling = log.by_id(move |run| {
        let gate = gate.clone();
        async move {
            if run == 1 {
                return HandlerResult::Again { after: Some(ms(3_000)), error: "no stock".into() };
            }
            gate.notified().await;
            HandlerResult::Done
        }
    });
    let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
    let process = Process::start(world.source(), "billing", &executor, handling, |b| b);
    for (id, runs) in [("delayed", 1), ("held", 2)] {
        world.send(b"{}", named(id).with_delivery_mode(2)).await;
        until("it runs", async || (log.runs() == runs).then_some(())).await;
        if id == "delayed" {
            process.until("it is delayed", |counts| counts.retried == 1).await;
        }
    }
    world.kill_broker().await;
    open.notify_one();
    process.until("the broker is missed", |counts| counts.source_errors > 0).await;
    tokio::task::spawn_blocking(|| SERVER.restart()).await.unwrap();
    open.notify_one();
    process.until("both are acknowledged", |counts| counts.acked == 2).await;
    let ids: Vec<_> = log.seen().into_iter().filter_map(|seen| seen.id).collect();
    assert_eq!(ids, ["delayed", "held", "delayed"]);
    assert_eq!(log.seen()[2].attempts, (Some(2), Some(2)));
    process.stop().await;
    world.reconnect().await;
    assert_eq!(world.count("killed").await, 0);
}

#[tokio::test]
async fn a_message_of_a_crashed_worker_is_deferred_until_its_lease_ends_and_then_run_again() {
    let world = World::new("died").await;
    world.declare("died").await;
    let store = Arc::new(MemoryStore::new());
    let policy = Policy::new().lease(ms(2_000)).heartbeat(ms(500));
    let (first, second) = (Arc::new(Log::default()), Arc::new(Log::default()));
    let hangs = first.by_id(|_| std::future::pending());
    let dying = Process::start(world.source(), "billing", &executor(&store, policy), hangs, |b| b);
    world.send_id("m").await;
    until("it runs", async || (first.runs() == 1).then_some(())).await;
    let begun = first.seen()[0].at;
    dying.kill();
    let process = Process::start(world.source(), "billing", &executor(&store, policy), second.by_id(done), |b| b);
    process.until("it is done", |counts| counts.acked == 1).await;
    let seen = second.seen();
    assert!(seen[0].at - begun >= ms(2_000), "within the lease of the first");
    // The claim counts the crashed run. The message has no attempt of a retry.
    assert_eq!((seen.len(), seen[0].attempts), (1, (Some(2), Some(1))));
    let counts = process.stop().await;
    assert!(counts.deferred >= 1 && counts.retried == 0, "{counts:?}");
}

#[tokio::test]
async fn each_of_many_messages_has_one_effect_however_often_connections_are_closed() {
    const MESSAGES: usize = 200;
    let world = World::alone("storm").await;
    world.declare("storm").await;
    let store = Arc::new(MemoryStore::new());
    let effects = Arc::new(Mutex::new(BTreeMap::<String, u32>::new()));
    let tried = Arc::new(Mutex::new(BTreeSet::new()));
    let processes = [(); 2].map(|()| {
        let (effects, tried) = (effects.clone(), tried.clone());
        let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
            let id = message.delivery.id.clone().unwrap();
            let (effects, tried) = (effects.clone(), tried.clone());
            async move {
                tokio::task::yield_now().await;
                // Every third message fails at its first run.
                if id.len() % 3 == 0 && tried.lock().unwrap().insert(id.clone()) {
                    return again(1).await;
                }
                *effects.lock().unwrap().entry(id).or_default() += 1;
                HandlerResult::Done
            }
        });
        Process::start(world.source(), "billing", &executor(&store, Policy::new()), handling, |b| b)
    });
    let publisher = RabbitPublisher::builder(SERVER.url()).build().unwrap();
    let sending = tokio::spawn(async move {
        for n in 0..MESSAGES * 2 {
            let id = "m".repeat(1 + n / 2);
            publisher.publish(&OutboundMessage::new("storm", id, "{}")).await.unwrap();
        }
    });
    for cuts in 1..=3 {
        until("some are done", async || (effects.lock().unwrap().len() > MESSAGES * cuts / 5).then_some(())).await;
        tokio::task::spawn_blocking(|| SERVER.close_all_connections()).await.unwrap();
    }
    within("all are sent", sending).await.unwrap();
    let mut world = world;
    world.reconnect().await;
    until("all are done", async || (effects.lock().unwrap().len() == MESSAGES).then_some(())).await;
    for process in processes {
        let counts = process.stop().await;
        assert_eq!(counts.dead_lettered, 0, "{counts:?}");
    }
    let effects = effects.lock().unwrap();
    assert!(effects.values().all(|times| *times == 1), "{effects:?}");
}

#[tokio::test]
async fn a_delivery_that_is_dropped_unsettled_is_redelivered_while_its_consumer_continues() {
    let world = World::new("dropped").await;
    let mut source = world.opened(Queue::classic("dropped")).await;
    world.send_id("m").await;
    // A consumer drops a delivery if settling fails for too long.
    drop(source.next().await);
    let again = source.next().await;
    assert_eq!(again.0.id.as_deref(), Some("m"));
    source.settle(&again, Settlement::Ack).await.unwrap();
}

//! Laws with a consumer.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore, Policy, Scene};
use idempotent_mq::{Consumer, ConsumerBuilder, ConsumerCounts, KeyFrom, MessageHandler, Messages};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::super::hand::{Hand, aside, emptied, until, within};
use super::super::testing::Running;
use super::super::{Broker, Message, Outage};

/// Creates an executor whose retries wait for the broker's delay.
fn executor<B: Broker>(broker: &B) -> Executor {
    let again = broker.limits().delay;
    let policy = Policy::new().retry_delay(again).in_flight_delay(again).jitter(0).max_retries(2);
    Executor::builder(MemoryStore::new()).policy(Scene::Mq, policy).build().unwrap()
}

/// Starts a consumer of the queue.
async fn start<B: Broker>(broker: &B, handlers: usize, prefetch: usize, handling: MessageHandler) -> Running {
    start_on(broker, &executor(broker), (handlers, prefetch), handling, |consumer| consumer).await
}

async fn start_on<B: Broker>(
    broker: &B,
    executor: &Executor,
    (handlers, prefetch): (usize, usize),
    handling: MessageHandler,
    settings: impl FnOnce(ConsumerBuilder<B::Source>) -> ConsumerBuilder<B::Source>,
) -> Running {
    let builder = Consumer::builder(broker.source().await, "conformance", executor);
    // The test does not depend on the length of the broker's redelivery.
    let builder = settings(builder.concurrency(handlers).prefetch(prefetch).allow_short_retention());
    Running::new(builder.build(handling).unwrap())
}

async fn acked<B: Broker>(broker: &B, running: &Running, messages: u64) {
    let acked = async || (running.counters.counts().acked >= messages).then_some(());
    until(broker, "all are acknowledged", acked).await;
}

async fn stop<B: Broker>(broker: &B, running: Running) -> ConsumerCounts {
    within(broker, "the drain", running.ended()).await.unwrap()
}

/// The ids of the messages whose handlers began, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// Returns a handler that logs its messages, and the log.
fn logged() -> (MessageHandler, Log) {
    let log = Log::default();
    let said = log.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
        said.lock().unwrap().extend(message.delivery.id.clone());
        async { Ok::<_, &str>(()) }
    });
    (handling, log)
}

/// Returns a handler that logs its messages and then waits, the log, and a semaphore, each of whose permits ends one wait.
fn gated() -> (MessageHandler, Log, Arc<Semaphore>) {
    let (log, open) = (Log::default(), Arc::new(Semaphore::new(0)));
    let (said, gate) = (log.clone(), open.clone());
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
        said.lock().unwrap().extend(message.delivery.id.clone());
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<_, &str>(())
        }
    });
    (handling, log, open)
}

/// Consumes until the queue is empty, and returns the ids of the messages that ran, in their order.
pub(super) async fn each_run<B: Broker>(broker: &B, messages: usize) -> Vec<String> {
    let (handling, log) = logged();
    let running = start(broker, 2, 4, handling).await;
    until(broker, "each message ran", async || (log.lock().unwrap().len() >= messages).then_some(())).await;
    emptied(broker).await;
    stop(broker, running).await;
    let mut ids = log.lock().unwrap().clone();
    ids.sort();
    ids
}

pub async fn copies_of_one_message_run_once<B: Broker>(broker: &B) {
    let (handling, log) = logged();
    let running = start(broker, 2, 4, handling).await;
    for _ in 0..2 {
        broker.publish(Message::new("m", "body")).await;
    }
    acked(broker, &running, 2).await;
    emptied(broker).await;
    let counts = stop(broker, running).await;
    assert_eq!((counts.acked, counts.retried, counts.dead_lettered), (2, 0, 0), "two deliveries, both done");
    assert_eq!(log.lock().unwrap().concat(), "m", "one run");
}

pub async fn messages_of_one_key_run_in_order<B: Broker>(broker: &B) {
    let log = Log::default();
    let said = log.clone();
    let order = KeyFrom::header("user");
    let handling = Messages::raw().ordered_by(order).keyed(KeyFrom::message_id()).run(move |message| {
        let (said, id) = (said.clone(), message.delivery.id.clone().unwrap());
        async move {
            said.lock().unwrap().push(format!("+{id}"));
            // Later messages are faster.
            let left = 20 - 5 * u64::from(id.as_bytes()[1] - b'0');
            sleep(Duration::from_millis(left)).await;
            said.lock().unwrap().push(format!("-{id}"));
            Ok::<_, &str>(())
        }
    });
    for number in 0..4 {
        for user in ["a", "b", "c"] {
            broker.publish(Message::new(format!("{user}{number}"), "").header("user", user)).await;
        }
    }
    let running = start(broker, 3, 12, handling).await;
    acked(broker, &running, 12).await;
    emptied(broker).await;
    stop(broker, running).await;
    let log = log.lock().unwrap();
    for user in ["a", "b", "c"] {
        let of: Vec<_> = log.iter().filter(|said| said[1..].starts_with(user)).cloned().collect();
        let expected = format!("+{user}0 -{user}0 +{user}1 -{user}1 +{user}2 -{user}2 +{user}3 -{user}3");
        assert_eq!(of.join(" "), expected);
    }
}

pub async fn a_stopping_consumer_returns_waiting_deliveries<B: Broker>(broker: &B) {
    let (handling, log, open) = gated();
    for number in 0..4 {
        broker.publish(Message::new(format!("{number}"), "")).await;
    }
    let running = start(broker, 1, 4, handling).await;
    let counters = running.counters.clone();
    until(broker, "all are taken", async || (counters.counts().received == 4).then_some(())).await;
    until(broker, "one runs", async || (log.lock().unwrap().len() == 1).then_some(())).await;
    let stopping = stop(broker, running);
    let opening = async {
        until(broker, "waiting ones are returned", async || (counters.counts().given_back == 3).then_some(())).await;
        open.add_permits(1);
    };
    let (counts, ()) = tokio::join!(stopping, opening);
    assert_eq!((counts.acked, counts.given_back, counts.unsettled), (1, 3, 0));
    let mut came = log.lock().unwrap().clone();
    assert_eq!(came.len(), 1, "none of the others ran");
    let mut other = Hand::of(broker).await;
    for _ in 0..3 {
        let next = other.next().await;
        assert!(next.0.attempt.is_none_or(|attempt| attempt == 1), "a returned delivery is not an attempt");
        came.extend(next.0.id.clone());
        other.ack(next).await;
    }
    came.sort();
    assert_eq!(came.concat(), "0123");
    other.leave_nothing(broker).await;
}

pub async fn a_consumer_continues_after_its_connections_were_cut<B: Broker>(broker: &B) {
    let (handling, log) = logged();
    let running = start(broker, 1, 4, handling).await;
    for number in 0..5 {
        broker.publish(Message::new(format!("{number}"), "")).await;
        until(broker, "the message ran", async || (log.lock().unwrap().len() > number).then_some(())).await;
        // The acknowledgement may be on its way.
        broker.cut().await;
    }
    emptied(broker).await;
    stop(broker, running).await;
    assert_eq!(log.lock().unwrap().concat(), "01234", "each ran once");
}

pub async fn a_run_that_ends_during_an_outage_is_not_repeated<B: Broker>(broker: &B) {
    let (handling, log, open) = gated();
    let running = start(broker, 1, 4, handling).await;
    let ran = |messages| {
        let log = log.clone();
        until(broker, "the message runs", async move || (log.lock().unwrap().len() == messages).then_some(()))
    };
    broker.publish(Message::new("m", "body")).await;
    ran(1).await;
    broker.begin_outage(Outage::Refused).await;
    let before = running.counters.counts();
    open.add_permits(1);
    // The settlement fails, unless the source sends acknowledgements later.
    let tried = async || {
        let counts = running.counters.counts();
        (counts.acked > 0 || counts.source_errors > before.source_errors).then_some(())
    };
    until(broker, "the run is settled or the outage noticed", tried).await;
    broker.end_outage().await;
    broker.publish(Message::new("n", "body")).await;
    ran(2).await;
    open.add_permits(1);
    emptied(broker).await;
    stop(broker, running).await;
    assert_eq!(log.lock().unwrap().concat(), "mn", "one run each");
}

pub async fn a_drain_during_an_outage_ends_and_each_message_runs_once<B: Broker>(broker: &B) {
    let executor = executor(broker);
    for outage in [Outage::Refused, Outage::Silent] {
        let (handling, log, open) = gated();
        let messages: Vec<_> = (0..6).map(|number| format!("{outage:?}{number}")).collect();
        for message in &messages {
            broker.publish(Message::new(&**message, "")).await;
        }
        // In the grace period, four runs cannot be acknowledged, and two waiting deliveries cannot be returned.
        // No waiting one takes the turn of a run that ends before the stop.
        let grace = |consumer: ConsumerBuilder<B::Source>| consumer.grace(Duration::from_secs(3)).claim_ahead(0);
        let running = start_on(broker, &executor, (4, 6), handling, grace).await;
        let is_full =
            async || (running.counters.counts().received == 6 && log.lock().unwrap().len() == 4).then_some(());
        until(broker, "four run and two wait", is_full).await;
        broker.begin_outage(outage).await;
        open.add_permits(4);
        let counts = stop(broker, running).await;
        assert_eq!(counts.received, counts.ended(), "{outage:?}: {counts:?}");
        broker.end_outage().await;
        let (handling, later) = logged();
        let running = start_on(broker, &executor, (2, 6), handling, |consumer| consumer).await;
        until(broker, "the others run", async || (later.lock().unwrap().len() >= 2).then_some(())).await;
        emptied(broker).await;
        stop(broker, running).await;
        let mut ran = [&*log.lock().unwrap(), &*later.lock().unwrap()].map(|log| log.clone()).concat();
        ran.sort();
        assert_eq!(ran, messages, "each ran once");
    }
}

pub async fn a_duplicate_in_flight_is_deferred_and_acknowledged_after_the_run<B: Broker>(broker: &B) {
    let (handling, log, open) = gated();
    let running = start(broker, 2, 4, handling).await;
    broker.publish(Message::new("m", "body")).await;
    until(broker, "the message runs", async || (log.lock().unwrap().len() == 1).then_some(())).await;
    broker.publish(Message::new("m", "body")).await;
    // More often than there are attempts.
    let deferred = async || (running.counters.counts().deferred >= 4).then_some(());
    until(broker, "the duplicate is deferred", deferred).await;
    assert_eq!(running.counters.counts().acked, 0, "the run has not ended");
    open.add_permits(1);
    acked(broker, &running, 2).await;
    emptied(broker).await;
    let counts = stop(broker, running).await;
    assert_eq!((counts.retried, counts.dead_lettered), (0, 0), "a deferral is not an attempt");
    assert_eq!(log.lock().unwrap().concat(), "m", "one run");
}

pub async fn an_undecodable_body_is_dead_lettered_unchanged_without_a_run<B: Broker>(broker: &B) {
    let log = Log::default();
    let said = log.clone();
    let handling = Messages::<u32>::json().keyed(KeyFrom::message_id()).run(move |message| {
        said.lock().unwrap().extend(message.delivery.id.clone());
        async { Ok::<_, &str>(()) }
    });
    let running = start(broker, 2, 4, handling).await;
    broker.publish(Message::new("odd", *b"\xff\x00 17")).await;
    broker.publish(Message::new("good", "17")).await;
    acked(broker, &running, 1).await;
    let (message, letter) = aside(broker, 1).await.remove(0);
    assert_eq!((&*message.id, &*message.body), ("odd", &b"\xff\x00 17"[..]));
    assert!(!letter.reason.is_empty(), "without a reason");
    emptied(broker).await;
    let counts = stop(broker, running).await;
    assert_eq!((counts.undecodable, counts.dead_lettered, counts.retried), (1, 1, 0));
    assert_eq!(log.lock().unwrap().concat(), "good");
}

pub async fn a_message_that_always_fails_is_dead_lettered_after_its_attempts<B: Broker>(broker: &B) {
    let log = Log::default();
    let said = log.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message: idempotent_mq::Message<()>| {
        said.lock().unwrap().extend(message.delivery.id.clone());
        async { Err::<(), _>("no stock") }
    });
    let running = start(broker, 1, 4, handling).await;
    broker.publish(Message::new("m", "body")).await;
    let (message, letter) = aside(broker, 1).await.remove(0);
    assert_eq!((&*message.id, &*message.body, letter.attempts), ("m", &b"body"[..], 3));
    assert!(letter.reason.starts_with("given up after 3 runs"), "{}", letter.reason);
    // A late duplicate does not run.
    broker.publish(Message::new("m", "body")).await;
    aside(broker, 2).await;
    emptied(broker).await;
    let counts = stop(broker, running).await;
    assert_eq!((counts.retried, counts.dead_lettered), (2, 2));
    assert_eq!(log.lock().unwrap().concat(), "mmm", "three runs");
}

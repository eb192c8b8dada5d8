//! Subscriptions that the broker cancels, and queues with a single active consumer.
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use idempotent_core::{MemoryStore, Policy, Timestamp};
use idempotent_mq::{HandlerResult, Received, Retry, Settlement, Source};
use idempotent_rabbitmq::Queue;
use tokio::sync::{Notify, Semaphore};

use crate::broker::world::{Log, Process, SERVER, World, done, executor, ms, until, within};

#[tokio::test]
async fn a_cancelled_subscription_is_renewed_and_deliveries_of_the_earlier_one_can_be_settled() {
    for (name, queue) in [
        ("cancelled.classic", Queue::classic("cancelled.classic")),
        ("cancelled.quorum", Queue::quorum("cancelled.quorum")),
    ] {
        let world = World::new(name).await;
        let mut source = world.opened(queue).await;
        world.send_id("a").await;
        let held = source.next().await;
        // The broker cancels the subscription and keeps the channel.
        world.delete(name).await;
        world.connect(&mut source).await;
        world.send_id("b").await;
        let next = source.next().await;
        assert_eq!(next.0.id.as_deref(), Some("b"));
        source.settle(&held, Settlement::Retry(Retry::after(ms(100), Timestamp(1)))).await.unwrap();
        source.settle(&next, Settlement::Ack).await.unwrap();
        let copy = source.next().await;
        assert_eq!((copy.0.id.as_deref(), copy.0.attempt), (Some("a"), Some(2)));
        source.settle(&copy, Settlement::Ack).await.unwrap();
    }
}

#[tokio::test]
async fn the_connection_of_a_source_has_the_name_of_its_queue() {
    let world = World::new("named-connection").await;
    let _source = world.opened(Queue::classic("named-connection")).await;
    // Connections of other tests may end meanwhile, and then have no properties.
    let names = SERVER.eval(
        "string:join([binary_to_list(Name) || Info <- rabbit_networking:connection_info_all([client_properties]), \
         is_list(Info), {_, Properties} <- Info, is_list(Properties), {<<\"connection_name\">>, _, Name} <- Properties], \
         \", \").",
    );
    assert!(names.contains("idempotent: named-connection"), "{names}");
}

#[tokio::test]
async fn a_cancellation_right_after_a_delivery_is_noticed() {
    let world = World::new("deleted-early").await;
    for _ in 0..20 {
        let mut source = world.opened(Queue::classic("deleted-early")).await;
        world.send_id("a").await;
        world.delete("deleted-early").await;
        // After this reply, the client has usually read the delivery and the cancellation.
        world.count("deleted-early.dead").await;
        let mut first = None;
        let renewed = async {
            world.subscribed().await;
            world.send_id("b").await;
        };
        let receiving = async {
            loop {
                match within("a delivery", source.0.receive(10)).await.unwrap() {
                    Received::Deliveries(some) if some.iter().any(|(one, _)| one.id.as_deref() == Some("b")) => return,
                    Received::Deliveries(some) => first = Some(some),
                    other => panic!("{other:?}"),
                }
            }
        };
        tokio::join!(renewed, receiving);
        drop(first);
        source.0.close().await;
        drop(source);
        world.delete("deleted-early").await;
    }
}

/// Starts two consumers of a queue with a single active one, and sends 40 messages. The first consumer runs 20 of them,
/// and `then` is the rest of its run of the 21st. Each process has a store of its own, so only the broker keeps the order.
async fn two_consumers<F: Future<Output = ()> + Send + 'static>(
    world: &World,
    queue: Queue,
    then: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> ([Process; 2], [Arc<Log>; 2]) {
    let logs = [Arc::new(Log::default()), Arc::new(Log::default())];
    world.source_of(queue.clone()).declare().await.unwrap();
    let start = |handling| {
        let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
        let source = world.source_of(queue.clone());
        Process::start(source, "billing", &executor, handling, |b| b.concurrency(1).prefetch(10))
    };
    let first = start(logs[0].by_id(move |run| {
        let then = then.clone();
        async move {
            if run == 21 {
                then().await;
            }
            HandlerResult::Done
        }
    }));
    world.subscribed().await;
    let second = start(logs[1].by_id(done));
    until("both subscribe", async || (subscriptions(&world.queue).await == "2").then_some(())).await;
    for id in 1..=40 {
        world.send_id(&id.to_string()).await;
    }
    until("the 21st runs", async || (logs[0].runs() == 21).then_some(())).await;
    // 20 are acknowledged, and the first process holds 10.
    until("10 are ready", async || (world.count(&world.queue).await == 10).then_some(())).await;
    // The broker counts deliveries that are still on their way to the process.
    first.until("10 are held", |counts| counts.received == 30).await;
    assert_eq!((first.counts().acked, second.counts().received), (20, 0));
    ([first, second], logs)
}

/// Returns the number of subscriptions, including those that wait.
async fn subscriptions(queue: &str) -> String {
    let of_queue = format!(
        "integer_to_list(length([C || C <- rabbit_amqqueue:consumers_all(<<\"/\">>), \
         proplists:get_value(queue_name, C) =:= {{resource, <<\"/\">>, queue, <<\"{queue}\">>}}]))."
    );
    tokio::task::spawn_blocking(move || SERVER.eval(&of_queue)).await.unwrap()
}

fn ids(log: &Log) -> Vec<u32> {
    log.seen().into_iter().map(|seen| seen.id.unwrap().parse().unwrap()).collect()
}

async fn the_rest_runs_in_order_after_a_kill(queue: Queue, name: &str) {
    let world = World::new(name).await;
    let hangs = std::future::pending::<()>;
    let ([first, second], logs) = two_consumers(&world, queue.single_active_consumer(), hangs).await;
    first.kill();
    second.until("the rest is acknowledged", |counts| counts.acked == 20).await;
    assert_eq!((ids(&logs[0]), ids(&logs[1])), ((1..=21).collect(), (21..=40).collect()));
    second.stop().await;
}

#[tokio::test]
async fn with_a_single_active_consumer_of_a_classic_queue_the_next_one_runs_the_rest_in_order_after_a_kill() {
    the_rest_runs_in_order_after_a_kill(Queue::classic("active.killed.classic"), "active.killed.classic").await;
}

#[tokio::test]
async fn with_a_single_active_consumer_of_a_quorum_queue_the_next_one_runs_the_rest_in_order_after_a_kill() {
    the_rest_runs_in_order_after_a_kill(Queue::quorum("active.killed.quorum"), "active.killed.quorum").await;
}

async fn the_rest_runs_in_order_after_a_stop(queue: Queue, name: &str) {
    let world = World::new(name).await;
    let open = Arc::new(Notify::new());
    let gate = open.clone();
    let waits = move || {
        let gate = gate.clone();
        async move { gate.notified().await }
    };
    let ([first, second], logs) = two_consumers(&world, queue.single_active_consumer(), waits).await;
    let counters = first.counters.clone();
    let stopping = tokio::spawn(first.stop());
    until("nine are given back", async || (counters.counts().given_back == 9).then_some(())).await;
    // The broker handles the requests of a channel in order, so this reply follows an earlier cancellation.
    assert_eq!(subscriptions(name).await, "2");
    assert_eq!((second.counts().received, logs[1].runs()), (0, 0), "the first one still holds a message");
    open.notify_one();
    let counts = within("the drain", stopping).await.unwrap();
    assert_eq!((counts.acked, counts.given_back, counts.unsettled), (21, 9, 0));
    second.until("the rest is acknowledged", |counts| counts.acked == 19).await;
    assert_eq!((ids(&logs[0]), ids(&logs[1])), ((1..=21).collect(), (22..=40).collect()));
    second.stop().await;
}

#[tokio::test]
async fn with_a_single_active_consumer_of_a_classic_queue_the_next_one_runs_the_rest_in_order_after_a_stop() {
    the_rest_runs_in_order_after_a_stop(Queue::classic("active.stopped.classic"), "active.stopped.classic").await;
}

#[tokio::test]
async fn with_a_single_active_consumer_of_a_quorum_queue_the_next_one_runs_the_rest_in_order_after_a_stop() {
    the_rest_runs_in_order_after_a_stop(Queue::quorum("active.stopped.quorum"), "active.stopped.quorum").await;
}

/// Replaces each of three consumers, in turn by a stop and a kill, while it handles a message and holds nine.
async fn the_order_survives_a_rolling_restart(queue: Queue, name: &str) {
    let world = World::new(name).await;
    let queue = queue.single_active_consumer();
    world.source_of(queue.clone()).declare().await.unwrap();
    let (log, permits) = (Arc::new(Log::default()), Arc::new(Semaphore::new(0)));
    let start = || {
        let permits = permits.clone();
        let handling = log.by_id(move |_| {
            let permits = permits.clone();
            async move {
                permits.acquire_owned().await.unwrap().forget();
                HandlerResult::Done
            }
        });
        // A store of its own, so that only the broker keeps the order.
        let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
        Process::start(world.source_of(queue.clone()), "billing", &executor, handling, |b| {
            b.concurrency(1).prefetch(10)
        })
    };
    let mut processes = VecDeque::new();
    for number in ["1", "2", "3"] {
        processes.push_back(start());
        until("a subscription", async || (subscriptions(name).await == number).then_some(())).await;
    }
    let (mut repeated, mut sent) = (0, 0);
    for kills in [false, true, false, true] {
        for _ in 0..20 {
            sent += 1;
            world.send_id(&sent.to_string()).await;
        }
        permits.add_permits(5);
        until("the sixth runs", async || (log.runs() == sent - 14 + repeated).then_some(())).await;
        until("five are ready", async || (world.count(name).await == 5).then_some(())).await;
        let active = processes.pop_front().unwrap();
        // The broker counts deliveries that are still on their way to the process.
        active.until("ten are held", |counts| counts.received - counts.acked == 10).await;
        if kills {
            active.kill();
            repeated += 1;
            permits.add_permits(15);
        } else {
            let counters = active.counters.clone();
            let stopping = tokio::spawn(active.stop());
            until("nine are given back", async || (counters.counts().given_back == 9).then_some(())).await;
            permits.add_permits(15);
            assert_eq!(within("the drain", stopping).await.unwrap().unsettled, 0);
        }
        until("all have run", async || (log.runs() == sent + repeated).then_some(())).await;
        processes.push_back(start());
        until("a subscription", async || (subscriptions(name).await == "3").then_some(())).await;
    }
    let mut seen = ids(&log);
    assert_eq!(seen.len(), 82, "the message that each kill interrupted is repeated: {seen:?}");
    seen.dedup();
    assert_eq!(seen, (1..=80).collect::<Vec<_>>());
    for process in processes {
        process.stop().await;
    }
}

#[tokio::test]
async fn the_order_of_a_classic_queue_with_a_single_active_consumer_survives_a_rolling_restart() {
    the_order_survives_a_rolling_restart(Queue::classic("active.rolling.classic"), "active.rolling.classic").await;
}

#[tokio::test]
async fn the_order_of_a_quorum_queue_with_a_single_active_consumer_survives_a_rolling_restart() {
    the_order_survives_a_rolling_restart(Queue::quorum("active.rolling.quorum"), "active.rolling.quorum").await;
}

//! The consumer runtime with this queue, on the server's own clock.
use std::sync::{Arc, Mutex};

use idempotent_core::{Executor, MemoryStore};
use idempotent_harness::servers::{RedisCluster, RedisServer};
use idempotent_mq::{
    Delay, HandlerResult, KeyFrom, MessageHandler, Messages, OutboundMessage, Publish, PublishErrorKind, Schedule,
    Scheduled,
};
use idempotent_redis::{DelayMessage, DelayProducer, DelayQueue, DelaySource};
use idempotent_testkit::broker::testing::{Running, billing};

use crate::delay_queue::world::{MINUTE, letters, ms, new};
use crate::support::until;

/// Handled bodies, in order.
type Runs = Arc<Mutex<Vec<String>>>;

/// Starts a consumer with two handlers.
fn start(queue: &DelayQueue, executor: &Executor, handling: MessageHandler) -> Running {
    let builder = billing(DelaySource::new(queue), executor).prefetch(4).concurrency(2);
    Running::new(builder.schedule(Schedule::exponential(ms(20), ms(100))).build(handling).unwrap())
}

/// Records the body, and returns the verdict for its number of records.
fn noting(runs: &Runs, answer: fn(usize) -> HandlerResult) -> MessageHandler {
    let runs = runs.clone();
    Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
        let body = String::from_utf8(message.delivery.body.clone()).unwrap();
        let mut runs = runs.lock().unwrap();
        runs.push(body.clone());
        let verdict = answer(runs.iter().filter(|ran| **ran == body).count());
        async { verdict }
    })
}

fn executor() -> Executor {
    Executor::new(MemoryStore::new())
}

async fn open(server: &RedisServer) -> DelayQueue {
    DelayQueue::builder(server.url(), "orders").visibility(ms(1_500)).connect().await.unwrap()
}

fn failing(kind: &'static str) -> HandlerResult {
    HandlerResult::Again { after: None, error: kind.into() }
}

async fn settled(queue: &DelayQueue) {
    until("nothing is left", async || {
        let counts = queue.counts().await.unwrap();
        counts.ready + counts.waiting + counts.in_flight == 0
    })
    .await;
}

#[tokio::test]
async fn a_message_is_held_while_its_handler_runs_and_redelivered_after_a_failure() {
    let server = RedisServer::start();
    let queue = open(&server).await;
    let runs = Runs::default();
    let held = Arc::new(Mutex::new(Vec::new()));
    let seen = (queue.clone(), held.clone());
    let noted = runs.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
        let ((queue, held), noted) = (seen.clone(), noted.clone());
        async move {
            let in_flight = queue.counts().await.unwrap().in_flight;
            held.lock().unwrap().push(in_flight);
            let mut noted = noted.lock().unwrap();
            noted.push(String::from_utf8(message.delivery.body.clone()).unwrap());
            if noted.len() < 3 { failing("no stock") } else { HandlerResult::Done }
        }
    });
    let executor = executor();
    let running = start(&queue, &executor, handling);
    new(queue.send(&DelayMessage::after(ms(1), "m")).await.unwrap());
    until("it is acknowledged", async || running.counters.counts().acked == 1).await;
    assert_eq!(*runs.lock().unwrap(), ["m", "m", "m"], "two failures and a success");
    assert_eq!(*held.lock().unwrap(), [1, 1, 1], "it is not acknowledged before its handler has run");
    let counts = running.ended().await.unwrap();
    assert_eq!((counts.acked, counts.retried), (1, 2));
    settled(&queue).await;
}

#[tokio::test]
async fn settled_messages_leave_nothing_on_the_server() {
    let server = RedisServer::start();
    let queue = open(&server).await;
    let runs = Runs::default();
    let executor = executor();
    let running = start(&queue, &executor, noting(&runs, |_| HandlerResult::Done));
    for number in 0..20 {
        let body = number.to_string();
        new(queue.send(&DelayMessage::after(ms(1), body.as_str()).id(format!("i{number}"))).await.unwrap());
        queue.send(&DelayMessage::merged("k", ms(1), body.as_str())).await.unwrap();
        new(queue.send(&DelayMessage::priority(20 + number, body)).await.unwrap());
    }
    settled(&queue).await;
    running.ended().await.unwrap();
    let left = server.command(&["KEYS", "*"]);
    let left: Vec<_> = left.items().iter().map(|key| key.text()).collect();
    assert_eq!(left, ["idempotent:delay:{orders:0}:meta"], "two numbers of the slot, and no collector");
}

#[tokio::test]
async fn messages_of_a_dead_consumer_are_redelivered_and_a_slow_consumer_keeps_its_own() {
    let server = RedisServer::start();
    let queue = open(&server).await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let runs = Runs::default();
    let handling = || {
        let (gate, runs) = (gate.clone(), runs.clone());
        Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
            let (gate, runs) = (gate.clone(), runs.clone());
            async move {
                runs.lock().unwrap().push(String::from_utf8(message.delivery.body.clone()).unwrap());
                gate.acquire().await.unwrap().forget();
                HandlerResult::Done
            }
        })
    };
    let began = || runs.lock().unwrap().len();
    let first = start(&queue, &executor(), handling());
    new(queue.send(&DelayMessage::after(ms(0), "m")).await.unwrap());
    until("it runs", async || began() == 1).await;
    first.kill().await;
    // A consumer of another process, which knows nothing of the first run.
    let second = start(&queue, &executor(), handling());
    until("it runs again", async || began() == 2).await;
    // Runs beyond the visibility timeout, while a third consumer waits for its end.
    let third = start(&queue, &executor(), handling());
    tokio::time::sleep(ms(3_500)).await;
    assert_eq!(began(), 2, "what is kept alive was taken away");
    gate.add_permits(1);
    until("it is acknowledged", async || second.counters.counts().acked == 1).await;
    settled(&queue).await;
    assert_eq!((second.ended().await.unwrap().acked, third.ended().await.unwrap().acked), (1, 0));
}

#[tokio::test]
async fn a_rejected_message_becomes_a_dead_letter_with_all_its_data() {
    let server = RedisServer::start();
    let queue = open(&server).await;
    let runs = Runs::default();
    let executor = executor();
    let running = start(&queue, &executor, noting(&runs, |_| HandlerResult::Never { reason: "no such order".into() }));
    new(queue.send(&DelayMessage::priority(20, "m").id("i").header("h", vec![0, 255])).await.unwrap());
    until("it is dead", async || queue.counts().await.unwrap().dead == 1).await;
    let (delivery, letter) = letters(&queue).await.remove(0);
    assert_eq!((delivery.id.as_deref(), &*delivery.body), (Some("i"), &b"m"[..]));
    assert_eq!((delivery.headers.first("h"), letter.attempts), (Some(&[0, 255][..]), 1));
    assert!(letter.reason.contains("no such order"), "{}", letter.reason);
    running.ended().await.unwrap();
}

#[tokio::test]
async fn a_producer_sends_to_the_messages_topic_and_keeps_the_order_of_an_aggregate() {
    let cluster = RedisCluster::start(3);
    let queue = DelayQueue::builder(cluster.url(), "orders").slots(8).connect().await.unwrap();
    let producer = DelayProducer::new(&queue);
    let message = |number: usize| {
        OutboundMessage::new("bills{x}", format!("m{number}"), number.to_string())
            .aggregate(format!("order-{}", number % 3))
            .business_key("b")
            .header("h", "v")
    };
    let mut messages: Vec<_> = (0..30).map(message).collect();
    messages.insert(10, OutboundMessage::new("bills{x}", "", "refused").aggregate("order-1"));
    let published = producer.publish(&messages).await;
    for (at, published) in published.iter().enumerate() {
        let of_the_chain = messages[at].aggregate.as_deref() == Some("order-1");
        match published {
            Ok(published) => {
                assert!(at < 10 || !of_the_chain);
                assert_eq!(&*published.position.as_ref().unwrap().source, "bills{x}");
            }
            Err(error) if at == 10 => assert_eq!(error.kind(), PublishErrorKind::Refused),
            Err(error) => assert_eq!((error.kind(), of_the_chain && at > 10), (PublishErrorKind::Unsent, true)),
        }
    }
    // The same ids: existing messages stay unchanged.
    messages.remove(10);
    assert!(producer.publish(&messages).await.iter().all(Result::is_ok));
    let bills = queue.for_topic("bills{x}").unwrap();
    let mut taken = Vec::new();
    let mut receiver = bills.receiver();
    while taken.len() < 30 {
        taken.extend(tokio::time::timeout(MINUTE, receiver.receive(7)).await.unwrap().unwrap());
    }
    assert_eq!((taken.len(), bills.counts().await.unwrap().ready), (30, 0));
    for aggregate in 0..3 {
        let numbers: Vec<usize> = taken
            .iter()
            .map(|taken| String::from_utf8(taken.body.clone()).unwrap().parse().unwrap())
            .filter(|number| number % 3 == aggregate)
            .collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
    assert_eq!((taken[0].business_key.as_deref(), taken[0].headers.first("h")), (Some("b"), Some(&b"v"[..])));
    assert_eq!(queue.counts().await.unwrap().ready, 0, "nothing in the producer's own topic");
}

#[tokio::test]
async fn an_unpaid_order_is_cancelled_once_and_on_time_and_a_paid_one_never() {
    let server = RedisServer::start();
    let queue = open(&server).await;
    let runs = Runs::default();
    let now = idempotent_core::Timestamp(
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros().try_into().unwrap(),
    );
    let at = now + ms(700);
    for order in ["paid", "unpaid"] {
        assert_eq!(queue.schedule(order, at, order.as_bytes()).await.unwrap(), Scheduled::New);
        assert_eq!(queue.schedule(order, at + MINUTE, b"").await.unwrap(), Scheduled::Already { at });
    }
    assert_eq!(Delay::cancel(&queue, "paid").await.unwrap(), idempotent_mq::Cancelled::Done);
    // A message that became due without a consumer is delivered to the next one.
    assert_eq!(queue.schedule("missed", now, b"missed").await.unwrap(), Scheduled::New);
    let executor = executor();
    let running = start(&queue, &executor, noting(&runs, |_| HandlerResult::Done));
    settled(&queue).await;
    let ended = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
    assert!(ended >= u128::from(at.0), "not before its time");
    assert_eq!(*runs.lock().unwrap(), ["missed", "unpaid"]);
    // Once the first cancellation is settled, a second one for the same order is a duplicate for its consumers.
    assert_eq!(queue.schedule("unpaid", at, b"unpaid").await.unwrap(), Scheduled::New);
    settled(&queue).await;
    until("both are acknowledged", async || running.counters.counts().acked == 3).await;
    assert_eq!(runs.lock().unwrap().len(), 2, "the duplicate does not run");
    running.ended().await.unwrap();
}

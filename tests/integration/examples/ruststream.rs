//! The example `ruststream`, from outside: on its memory broker, on RabbitMQ and on MQTT.
use idempotent::mq::{DeadLetters, OutboundMessage};
use idempotent::rabbitmq::{Queue, RabbitDeadLetters, RabbitPublisher, Topology};
use idempotent::{Executor, SqliteStore, idempotent};
use idempotent_harness::servers::{MosquittoServer, RabbitServer};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::example::Running;

/// A worker that runs an order of the example, on the same keys, until the test ends its run.
struct OtherWorker {
    end: oneshot::Sender<bool>,
    run: JoinHandle<anyhow::Result<()>>,
}

#[idempotent(scene = mq, scope = "charge", key = number, with = executor)]
async fn charge(
    executor: Executor,
    number: u64,
    started: oneshot::Sender<()>,
    end: oneshot::Receiver<bool>,
) -> anyhow::Result<()> {
    started.send(()).unwrap();
    anyhow::ensure!(end.await?, "the payment service does not answer");
    Ok(())
}

impl OtherWorker {
    async fn runs(number: u64, keys: &str) -> Self {
        let executor = Executor::new(SqliteStore::open(keys).await.unwrap());
        let ((started, start), (end, ended)) = (oneshot::channel(), oneshot::channel());
        let run = tokio::spawn(charge(executor, number, started, ended));
        start.await.unwrap();
        Self { end, run }
    }

    async fn ends(self, is_charged: bool) {
        self.end.send(is_charged).unwrap();
        assert_eq!(self.run.await.unwrap().is_ok(), is_charged);
    }
}

/// The example, which waits for orders.
fn start(broker: &str, keys: &str) -> Running {
    let mut running = Running::start("ruststream", &[broker, keys]);
    running.says_at_last("waiting for orders");
    running
}

/// Reads lines until there was this one for a duplicate in flight.
fn defers(running: &mut Running) {
    while !running.says(1).pop().expect("never deferred").starts_with("an identical call is in flight; retry in ") {}
}

fn order(number: u64) -> String {
    format!(r#"{{"number": {number}, "cents": 500}}"#)
}

fn charged(number: u64) -> String {
    format!("order {number}: charged 500 cents")
}

const ACKNOWLEDGED: &str = "a duplicate: acknowledged";

/// Sends an unreadable message, two equal orders, an order of nothing, and another one.
///
/// # Panics
/// If an order is not charged exactly once.
async fn each_order_is_charged_once(running: &mut Running, send: impl AsyncFn(&mut Running, String)) {
    let nothing = r#"{"number": 3, "cents": 0}"#.to_owned();
    for message in ["what?".to_owned(), order(1), order(1), nothing, order(2)] {
        send(running, message).await;
    }
    let mut seen = Vec::new();
    let wanted = [charged(1), charged(2), ACKNOWLEDGED.to_owned(), "order 3: nothing to charge".to_owned()];
    while !wanted.iter().all(|line| seen.contains(line)) {
        let line = running.says(1).pop().expect("the example ended");
        assert!(!(line.contains(": charged ") && seen.contains(&line)), "charged twice: {seen:?}");
        seen.push(line);
    }
}

/// Sends orders that another worker runs: one fails there, and one succeeds.
async fn duplicates_in_flight_are_retried(running: &mut Running, keys: &str, send: impl AsyncFn(&mut Running, String)) {
    for is_charged in [false, true] {
        let number = 10 + u64::from(is_charged);
        let other = OtherWorker::runs(number, keys).await;
        send(running, order(number)).await;
        defers(running);
        other.ends(is_charged).await;
        running.says_at_last(&if is_charged { ACKNOWLEDGED.to_owned() } else { charged(number) });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_broker_charges_each_order_once_and_retries_duplicates_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.db").display().to_string();
    let mut running = start("memory", &keys);
    let send = async |running: &mut Running, line: String| running.enter(&line);
    each_order_is_charged_once(&mut running, &send).await;
    duplicates_in_flight_are_retried(&mut running, &keys, &send).await;
    running.signal("-TERM");
    running.ends();
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_keeps_what_is_dropped_and_a_retry_that_waits_while_the_program_is_killed() {
    let (server, folder) = (RabbitServer::start(), tempfile::tempdir().unwrap());
    let keys = folder.path().join("keys.db").display().to_string();
    let queue = Queue::classic("orders")
        .argument("x-queue-type", "classic")
        .argument("x-dead-letter-exchange", "")
        .argument("x-dead-letter-routing-key", "orders.dead");
    Topology::new().queue(queue).declare(server.url()).await.unwrap();
    let publisher = RabbitPublisher::builder(server.url()).build().unwrap();
    let send = async |_: &mut Running, body: String| {
        publisher.publish(&OutboundMessage::new("orders", "id", body)).await.unwrap();
    };
    let mut killed = start(&server.url(), &keys);
    each_order_is_charged_once(&mut killed, &send).await;
    // The unreadable message, and the order of nothing.
    let dead = || server.queues("/", "messages_ready").get("orders.dead") == Some(&2);
    crate::wait::until("both are dead letters", dead);
    assert_eq!(RabbitDeadLetters::new(server.url(), "orders").unwrap().count().await.unwrap(), 2);

    let other = OtherWorker::runs(4, &keys).await;
    send(&mut killed, order(4)).await;
    defers(&mut killed);
    killed.signal("-KILL");
    let mut next = start(&server.url(), &keys);
    other.ends(false).await;
    next.says_at_last(&charged(4));
    duplicates_in_flight_are_retried(&mut next, &keys, &send).await;
    next.signal("-TERM");
    next.ends();
    crate::wait::until("only the dead letters are left", || {
        let left = server.queues("/", "messages");
        (left["orders"], left["orders.retry"], left["orders.dead"]) == (0, 0, 2)
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn mqtt_charges_each_order_once_and_keeps_a_retry_that_waits_while_the_program_is_killed() {
    let (server, folder) = (MosquittoServer::start(), tempfile::tempdir().unwrap());
    let keys = folder.path().join("keys.db").display().to_string();
    let send = async |_: &mut Running, body: String| server.publish("orders", &body);
    let mut first = start(&server.url(), &keys);
    each_order_is_charged_once(&mut first, &send).await;
    duplicates_in_flight_are_retried(&mut first, &keys, &send).await;
    first.signal("-TERM");
    first.ends();

    // While no program runs, the server keeps it.
    server.publish("orders", &order(4));
    let other = OtherWorker::runs(4, &keys).await;
    let mut killed = start(&server.url(), &keys);
    defers(&mut killed);
    killed.signal("-KILL");
    let mut next = start(&server.url(), &keys);
    defers(&mut next);
    other.ends(false).await;
    next.says_at_last(&charged(4));
    next.signal("-TERM");
    next.ends();
}

//! The example with RabbitMQ, which delivers the notices, and keeps the time limits or does not.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent::mq::OutboundMessage;
use idempotent::outbox::OutboxStatus;
use idempotent::rabbitmq::{Queue, RabbitPublisher, RabbitSource};
use idempotent_harness::servers::RabbitServer;

use super::processes::{ends_once, shop};
use super::shop::{NOTICES, PAYMENT, Shop};
use super::until;
use crate::example::{self, Running};

/// The database of a test, its server, and the arguments of a process on both.
struct OnRabbit {
    server: Arc<RabbitServer>,
    shop: Shop,
    args: Vec<String>,
    _folder: tempfile::TempDir,
}

impl OnRabbit {
    async fn new(with: &str, limit: &str) -> Self {
        let server = tokio::task::spawn_blocking(RabbitServer::start).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.db").display().to_string();
        let args = ["--with", with, "--url", &server.url(), "--limit", limit, "--database", &file];
        let args = args.map(str::to_owned).to_vec();
        Self { server: Arc::new(server), shop: shop(&file).await, args, _folder: folder }
    }

    /// Starts a process that works until it is killed, and places an order.
    fn place(&self, order: &str) -> Running {
        let mut running = Running::start("order_timeout", &self.all(&["place", order]));
        assert_eq!(running.says(1), [format!("{order}: placed")]);
        running
    }

    fn all<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        self.args.iter().map(String::as_str).chain(rest.iter().copied()).collect()
    }

    async fn restart(&self) {
        let server = self.server.clone();
        tokio::task::spawn_blocking(move || server.restart()).await.unwrap();
    }
}

#[test]
fn with_rabbitmq_each_order_ends_with_one_effect() {
    let server = RabbitServer::start();
    ends_once(&example::run("order_timeout", &["--with", "rabbitmq", "--url", &server.url(), "--limit", "2s"]));
}

#[tokio::test]
async fn with_rabbitmq_an_order_outlives_its_process_and_the_broker_and_is_not_cancelled_early() {
    let (world, limit) = (OnRabbit::new("rabbitmq", "8s").await, Duration::from_secs(8));
    let start = Instant::now();
    let running = world.place("o");
    // Until the relay has recorded the confirm, or the time limit is over.
    until("the broker has the limit", async || {
        let limit = world.shop.outbox.inspect(&PAYMENT.key("o")).await.unwrap();
        limit.is_some_and(|(stub, _)| stub.sent_at.is_some())
    })
    .await;
    drop(running);
    world.restart().await;
    let work: Vec<_> = world.all(&["work"]).into_iter().map(str::to_owned).collect();
    let working = tokio::task::spawn_blocking(move || {
        example::run("order_timeout", &work.iter().map(String::as_str).collect::<Vec<_>>())
    });
    until("it is cancelled", async || world.shop.status("o").await.unwrap() == "cancelled").await;
    assert!(start.elapsed() >= limit, "after {:?}", start.elapsed());
    working.await.unwrap();
    assert_eq!(world.shop.effects("o").await.unwrap(), ["cancelled"]);
    assert_eq!(world.shop.notices("o").await.unwrap(), ["o is cancelled"]);
}

#[tokio::test]
async fn a_process_killed_between_the_commit_and_the_sending_leaves_the_notice_to_the_next_one() {
    let world = OnRabbit::new("table", "1ms").await;
    let shop = &world.shop;
    // The broker is away while the orders are cancelled: the first process commits the notices, and sends none.
    world.server.kill();
    let first = world.place("o");
    let notice = "cancelled o";
    let tried = async || shop.outbox.inspect(notice).await.unwrap().is_some_and(|(stub, _)| stub.last_error.is_some());
    until("the relay has tried to send the notice", tried).await;
    first.signal("-KILL");
    drop(first);
    assert_eq!(shop.status("o").await.unwrap(), "cancelled");
    let (stub, message) = shop.outbox.inspect(notice).await.unwrap().unwrap();
    assert_eq!((stub.status, stub.sent_at), (OutboxStatus::Unconfirmed, None), "it is not sent");
    assert!(shop.notices("o").await.unwrap().is_empty(), "the customer knows nothing yet");

    // The broker already has two copies: of a relay that died before it recorded the sending, and of a bridge that
    // drops headers, so that the outbox does not know the copy as its own.
    world.restart().await;
    let url = world.server.url();
    RabbitSource::connect(&url, Queue::quorum(NOTICES)).await.unwrap();
    let publisher = RabbitPublisher::builder(&url).build().unwrap();
    let copy = message.unwrap();
    publisher.publish(&copy).await.unwrap();
    publisher.publish(&OutboundMessage::new(NOTICES, notice, copy.body)).await.unwrap();
    let next = world.place("p");
    for order in ["o", "p"] {
        let notices = [format!("{order} is cancelled")];
        until("the customer is told", async || shop.notices(order).await.unwrap() == notices).await;
    }
    let counts = async || shop.outbox.counts().await.unwrap();
    until("each notice is confirmed", async || counts().await.unsent + counts().await.unconfirmed == 0).await;
    let left = async || world.server.queues("/", "messages")[NOTICES];
    until("the copies are acknowledged", async || left().await == 0).await;
    for order in ["o", "p"] {
        assert_eq!(shop.effects(order).await.unwrap(), ["cancelled"]);
        assert_eq!(shop.notices(order).await.unwrap(), [format!("{order} is cancelled")], "once for each order");
    }
    drop(next);
}

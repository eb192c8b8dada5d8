//! The example with RabbitMQ, which keeps the time limits.
use std::time::{Duration, Instant};

use idempotent::outbox::Outbox;
use idempotent_harness::servers::RabbitServer;

use super::shop::Shop;
use crate::example::{self, Running};

#[test]
fn with_rabbitmq_each_order_ends_with_one_effect() {
    let server = RabbitServer::start();
    let said = example::run("order_timeout", &["--with", "rabbitmq", "--url", &server.url(), "--limit", "2s"]);
    let ends = |order: &str, status: &str| said.contains(&format!("{order}: {status}, by 1 effect\n"));
    assert!(ends("order-1", "paid"), "{said}");
    assert!(ends("order-3", "cancelled"), "{said}");
    let in_time = said.contains("order-2: the payment came in time");
    assert!(ends("order-2", if in_time { "paid" } else { "cancelled" }), "{said}");
}

#[tokio::test]
async fn with_rabbitmq_an_order_outlives_its_process_and_the_broker_and_is_not_cancelled_early() {
    let server = tokio::task::spawn_blocking(RabbitServer::start).await.unwrap();
    let (folder, url, limit) = (tempfile::tempdir().unwrap(), server.url(), Duration::from_secs(8));
    let path = folder.path().join("shop.db");
    let file = path.to_str().unwrap().to_owned();
    let args = |rest: &[&str]| -> Vec<String> {
        let all = ["--with", "rabbitmq", "--url", &url, "--limit", "8s", "--database", &file];
        all.iter().chain(rest).map(|arg| (*arg).to_owned()).collect()
    };
    let start = Instant::now();
    let place = args(&["place", "o"]);
    let mut running = Running::start("order_timeout", &place.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(running.says(1), ["o: placed"]);
    // Until the relay has recorded the confirm, or the time limit is over.
    let shop = Shop::open(&file, |limits| limits).await.unwrap();
    let outbox = Outbox::builder(shop.orders.clone()).open().await.unwrap();
    super::until("the broker has the limit", async || {
        outbox.inspect("o").await.unwrap().is_some_and(|(stub, _)| stub.sent_at.is_some())
    })
    .await;
    drop(running);
    let work = args(&["work"]);
    let server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap();
    let working = tokio::task::spawn_blocking(move || {
        example::run("order_timeout", &work.iter().map(String::as_str).collect::<Vec<_>>())
    });
    super::until("it is cancelled", async || shop.status("o").await.unwrap() == "cancelled").await;
    assert!(start.elapsed() >= limit, "after {:?}", start.elapsed());
    working.await.unwrap();
    assert_eq!(shop.effects("o").await.unwrap(), ["cancelled"]);
    drop(server);
}

//! A relay whose database is away, and is back again [B29].
use std::sync::Arc;
use std::time::Duration;

use idempotent_mq::Outbound;
use idempotent_sqlx::{Outbox, Relay};
use idempotent_testkit::proxy::{Fault, Proxy};
use idempotent_testkit::servers::MariaDbServer;
use sqlx::MySqlPool;
use tokio::sync::oneshot;

use crate::broker::Broker;
use crate::told::{Told, until};

/// Of a pool that gives up soon.
async fn pool(url: &str) -> MySqlPool {
    let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(4).acquire_timeout(Duration::from_millis(700));
    pool.connect(url).await.unwrap()
}

async fn put(server: &MariaDbServer, id: &str) {
    let pool = pool(&server.url()).await;
    let outbox = Outbox::builder(pool.clone()).open().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    outbox.enqueue(&mut tx, &Outbound::new("orders", id, "")).await.unwrap();
    tx.commit().await.unwrap();
    pool.close().await;
}

#[tokio::test]
async fn b29_a_relay_outlives_a_database_that_is_cut_off_and_killed_and_tells_of_each_once() {
    let told = Told::default();
    let _told = tracing::subscriber::set_default(told.clone());
    let server = MariaDbServer::start_durable();
    let proxy = Proxy::start(&server.address()).await;
    let url = server.url().replace(&server.address(), &proxy.address());
    let outbox = Outbox::builder(pool(&url).await).create(true).open().await.unwrap();
    let broker = Arc::new(Broker::new());
    let relay = Relay::new(&outbox, broker.clone()).poll(Duration::from_millis(50)).lease(Duration::from_secs(2));
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { relay.run(async { drop(stopped.await) }).await });
    // And written down: what is killed in between is sent again when its lease is over.
    let unsent = || server.sql("test", "SELECT count(*) FROM idempotent_outbox WHERE sent_at IS NULL");
    let sent = async |id: &str| {
        until(async || broker.ids().iter().any(|sent| sent == id) && unsent().trim() == "0", id).await;
    };
    put(&server, "at first").await;
    sent("at first").await;

    // A cut connection of the pool is made again, unnoticed; so it is the new one that is cut.
    proxy.fail_next_with("t.due_at", Fault::CutAfterApply);
    server.close_all_connections();
    told.comes_to((1, 1)).await;
    put(&server, "after a cut").await;
    sent("after a cut").await;

    server.kill();
    told.comes_to((2, 1)).await;
    // It tries again, and again, and says no more.
    let tries = proxy.passed().connections;
    until(async || proxy.passed().connections > tries + 3, "it tries again").await;
    assert_eq!(told.counts(), (2, 1));
    server.restart();
    told.comes_to((2, 2)).await;
    put(&server, "after a restart").await;
    sent("after a restart").await;
    stop.send(()).unwrap();
    assert!(running.await.unwrap().sent >= 3);
    let mut ids = broker.ids();
    ids.sort();
    ids.dedup();
    assert_eq!(ids, ["after a cut", "after a restart", "at first"]);
}

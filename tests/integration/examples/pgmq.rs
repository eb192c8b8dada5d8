//! The example `pgmq`, from outside, on a private server.
use idempotent::pgmq::{PgmqDeadLetters, PgmqSource};
use idempotent_harness::servers::PostgresServer;

use crate::brokers;

#[tokio::test(flavor = "multi_thread")]
async fn each_order_is_charged_once_with_its_message_and_an_unreadable_one_is_dead_lettered() {
    let server = PostgresServer::start();
    server.install_pgmq("postgres");
    let url = server.url().replacen("postgres://", "pgmq://", 1);
    PgmqSource::builder(&*url, "orders").declare().connect().await.unwrap();
    let send = async |_: &str, body: &str| {
        // A queue of pgmq takes JSON only.
        let json = if body.starts_with('{') { body.to_owned() } else { format!("\"{body}\"") };
        server.psql("postgres", &format!("SELECT pgmq.send('orders', '{json}')"));
    };
    let letters = PgmqDeadLetters::new(&*url, "orders");
    let play = brokers::each_order_is_charged_once_and_an_unreadable_one_is_dead_lettered;
    let next = play("pgmq", &[&url], send, letters).await;
    while server.psql("postgres", "SELECT count(*) FROM pgmq.q_orders") != "0" {
        tokio::task::yield_now().await;
    }
    next.signal("-INT");
    next.ends();
    assert_eq!(server.psql("postgres", "SELECT string_agg(number::text, ',' ORDER BY number) FROM charges"), "1,2,3");
}

//! The example `pgmq`, from outside, on a private server.
use idempotent::mq::DeadLetters;
use idempotent::pgmq::{PgmqDeadLetters, PgmqSource};
use idempotent_harness::servers::PostgresServer;

use crate::example::Running;

#[tokio::test(flavor = "multi_thread")]
async fn each_order_is_charged_once_with_its_message_and_an_unreadable_one_is_dead_lettered() {
    let server = PostgresServer::start();
    server.install_pgmq("postgres");
    let url = server.url().replacen("postgres://", "pgmq://", 1);
    // The queue exists before the example starts, and contains its messages.
    PgmqSource::builder(&*url, "orders").declare().connect().await.unwrap();
    let send = |json: &str| server.psql("postgres", &format!("SELECT pgmq.send('orders', '{json}')"));
    send("\"what?\"");
    send(r#"{"number": 1, "cents": 500}"#);
    send(r#"{"number": 1, "cents": 500}"#);
    send(r#"{"number": 2, "cents": 300}"#);
    let mut first = Running::start("pgmq", &[&url]);
    let mut charged = first.says(2);
    charged.sort();
    assert_eq!(charged, ["order 1: charged 500 cents", "order 2: charged 300 cents"]);
    let mut letters = PgmqDeadLetters::new(&*url, "orders");
    while letters.count().await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    first.signal("-TERM");
    first.ends();

    send(r#"{"number": 2, "cents": 300}"#);
    send(r#"{"number": 3, "cents": 100}"#);
    let mut next = Running::start("pgmq", &[&url]);
    assert_eq!(next.says(1), ["order 3: charged 100 cents"]);
    while server.psql("postgres", "SELECT count(*) FROM pgmq.q_orders") != "0" {
        tokio::task::yield_now().await;
    }
    next.signal("-INT");
    next.ends();
    assert_eq!(server.psql("postgres", "SELECT string_agg(number::text, ',' ORDER BY number) FROM charges"), "1,2,3");
}

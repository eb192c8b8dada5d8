//! The example `kafka` and the application `consume`, from outside, on a private broker.
use idempotent::kafka::{KafkaDeadLetters, KafkaPublisher, KafkaSource};
use idempotent::mq::{DeadLetters, OutboundMessage, Publish};
use idempotent_harness::servers::KafkaServer;

use crate::example::Running;

mod consume;
mod guide;

#[tokio::test(flavor = "multi_thread")]
async fn each_order_is_charged_once_and_an_unreadable_one_is_dead_lettered() {
    let (server, folder) = (KafkaServer::start(), tempfile::tempdir().unwrap());
    let keys = folder.path().join("keys.db").display().to_string();
    let arguments = [&*server.url(), &*keys];
    // The topic exists before the example starts, and contains its messages.
    KafkaSource::builder(server.url(), "orders", "other").declare(2).connect().await.unwrap();
    let publisher = KafkaPublisher::new(server.url());
    let send = async |id: &str, body: &str| {
        let sent = publisher.publish(&[OutboundMessage::new("orders", id, body)]).await;
        sent.into_iter().for_each(|sent| drop(sent.unwrap()));
    };
    send("a", "what?").await;
    send("b", r#"{"number": 1, "cents": 500}"#).await;
    send("c", r#"{"number": 1, "cents": 500}"#).await;
    send("d", r#"{"number": 2, "cents": 300}"#).await;
    let mut first = Running::start("kafka", &arguments);
    let mut charged = first.says(2);
    charged.sort();
    assert_eq!(charged, ["order 1: charged 500 cents", "order 2: charged 300 cents"]);
    let mut letters = KafkaDeadLetters::new(server.url(), "orders");
    while letters.count().await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    first.signal("-TERM");
    first.ends();

    send("e", r#"{"number": 2, "cents": 300}"#).await;
    send("f", r#"{"number": 3, "cents": 100}"#).await;
    let mut next = Running::start("kafka", &arguments);
    assert_eq!(next.says(1), ["order 3: charged 100 cents"]);
    next.signal("-INT");
    next.ends();
}

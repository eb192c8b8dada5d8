//! The example `sqs` and the application `consume`, from outside, on a private emulator.
use idempotent::mq::{DeadLetters, OutboundMessage, Publish};
use idempotent::sqs::{SqsDeadLetters, SqsPublisher, SqsSource, client};
use idempotent_harness::servers::MotoServer;

use crate::example::Running;

mod consume;

#[tokio::test(flavor = "multi_thread")]
async fn each_order_is_charged_once_and_an_unreadable_one_is_dead_lettered() {
    let (server, folder) = (MotoServer::start(), tempfile::tempdir().unwrap());
    let url = format!("sqs://eu-west-1?endpoint=http://{}", server.address());
    let keys = folder.path().join("keys.db").display().to_string();
    let client = client(&url).unwrap();
    // The queue exists before the example starts, and contains its messages.
    SqsSource::builder(client.clone(), "orders").declare().connect().await.unwrap();
    let publisher = SqsPublisher::new(client.clone());
    let send = async |id: &str, body: &str| {
        let sent = publisher.publish(&[OutboundMessage::new("orders", id, body)]).await;
        sent.into_iter().for_each(|sent| drop(sent.unwrap()));
    };
    send("a", "what?").await;
    send("b", r#"{"number": 1, "cents": 500}"#).await;
    send("c", r#"{"number": 1, "cents": 500}"#).await;
    send("d", r#"{"number": 2, "cents": 300}"#).await;
    let run = || Running::start("sqs", &[&url, &keys]);
    let mut first = run();
    let mut charged = first.says(2);
    charged.sort();
    assert_eq!(charged, ["order 1: charged 500 cents", "order 2: charged 300 cents"]);
    let mut letters = SqsDeadLetters::new(client, "orders");
    while letters.count().await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    first.signal("-TERM");
    first.ends();

    send("e", r#"{"number": 2, "cents": 300}"#).await;
    send("f", r#"{"number": 3, "cents": 100}"#).await;
    let mut next = run();
    assert_eq!(next.says(1), ["order 3: charged 100 cents"]);
    next.signal("-INT");
    next.ends();
}

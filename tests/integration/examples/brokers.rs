//! The examples of single brokers, from outside: what each of them does with the same messages.
use idempotent::mq::{DeadLetters, OutboundMessage, Publish};

use crate::example::Running;

/// Runs an example whose queue exists. `send` sends a message with this id and body.
///
/// Returns the second process of the example, which is still running.
pub(crate) async fn each_order_is_charged_once_and_an_unreadable_one_is_dead_lettered(
    example: &str,
    arguments: &[&str],
    send: impl AsyncFn(&str, &str),
    mut letters: impl DeadLetters,
) -> Running {
    // The queue contains messages before the example starts.
    send("a", "what?").await;
    send("b", r#"{"number": 1, "cents": 500}"#).await;
    send("c", r#"{"number": 1, "cents": 500}"#).await;
    send("d", r#"{"number": 2, "cents": 300}"#).await;
    let mut first = Running::start(example, arguments);
    let mut charged = first.says(2);
    charged.sort();
    assert_eq!(charged, ["order 1: charged 500 cents", "order 2: charged 300 cents"]);
    while letters.count().await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    first.signal("-TERM");
    first.ends();

    send("e", r#"{"number": 2, "cents": 300}"#).await;
    send("f", r#"{"number": 3, "cents": 100}"#).await;
    let mut next = Running::start(example, arguments);
    assert_eq!(next.says(1), ["order 3: charged 100 cents"]);
    next
}

/// Runs the example of a broker with a publisher, as above, and stops it.
pub(crate) async fn each_published_order_is_charged_once(
    example: &str,
    arguments: &[&str],
    (publisher, topic): (impl Publish, &str),
    letters: impl DeadLetters,
) {
    let send = async |id: &str, body: &str| {
        let sent = publisher.publish(&[OutboundMessage::new(topic, id, body)]).await;
        sent.into_iter().for_each(|sent| drop(sent.unwrap()));
    };
    let next =
        each_order_is_charged_once_and_an_unreadable_one_is_dead_lettered(example, arguments, send, letters).await;
    next.signal("-TERM");
    next.ends();
}

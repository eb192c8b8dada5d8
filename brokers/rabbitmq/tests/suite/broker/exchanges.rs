//! Routing by each kind of exchange.
use idempotent_mq::{OutboundMessage, PublishErrorKind};
use idempotent_rabbitmq::{RabbitPublisher, Route};
use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::FieldTable;

use crate::broker::world::{SERVER, World, within};

type Bound = [(&'static str, &'static str)];
type Sent = [(&'static str, &'static [&'static str])];

/// Each kind of exchange, with the keys of its bound queues, and the queues that a message with a key reaches.
const EXCHANGES: [(ExchangeKind, &Bound, &Sent); 3] = [
    (ExchangeKind::Direct, &[("a", "paid"), ("b", "sent")], &[("paid", &["a"]), ("sent", &["b"]), ("paid.late", &[])]),
    (ExchangeKind::Fanout, &[("a", ""), ("b", "sent")], &[("paid", &["a", "b"]), ("", &["a", "b"])]),
    (
        // `*` matches one word, and `#` any number of words.
        ExchangeKind::Topic,
        &[("a", "order.*.paid"), ("b", "order.#")],
        &[("order.17.paid", &["a", "b"]), ("order", &["b"]), ("order.17.18.paid", &["b"]), ("orders.17.paid", &[])],
    ),
];

#[tokio::test]
async fn a_message_reaches_each_queue_bound_with_its_key_and_is_an_error_without_one() {
    let world = World::new("exchanges").await;
    let publisher = RabbitPublisher::builder(SERVER.url()).build().unwrap();
    let (durable, none) = (ExchangeDeclareOptions { durable: true, ..Default::default() }, FieldTable::default);
    for (kind, bound, sent) in EXCHANGES {
        let of = |queue: &str| format!("exchanges.{kind:?}.{queue}");
        let exchange = of("exchange");
        let named = || exchange.as_str().into();
        world.admin.exchange_declare(named(), kind.clone(), durable, none()).await.unwrap();
        for (queue, key) in bound {
            world.declare(&of(queue)).await;
            let bind = QueueBindOptions::default();
            world.admin.queue_bind(of(queue).into(), named(), (*key).into(), bind, none()).await.unwrap();
        }
        for (key, queues) in sent {
            let message = OutboundMessage::new(Route::exchange(&exchange, *key), format!("m {key}"), "{}");
            let result = within("an answer", publisher.publish(&message)).await;
            let unroutable = queues.is_empty().then_some(PublishErrorKind::Refused);
            assert_eq!(result.err().map(|error| error.kind()), unroutable, "{kind:?} {key}");
            for (queue, _) in bound {
                let got = world.take(&of(queue)).await;
                assert_eq!(got.is_some(), queues.contains(queue), "{kind:?} {key} in {queue}");
            }
        }
    }
}

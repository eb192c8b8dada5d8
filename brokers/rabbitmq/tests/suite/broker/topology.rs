//! Declaration of exchanges, queues and bindings.
use std::error::Error;

use idempotent_mq::{OutboundMessage, PublishErrorKind, SourceError, SourceErrorKind};
use idempotent_rabbitmq::{Exchange, FieldValue, Queue, RabbitPublisher, Route, Topology};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};

use crate::broker::world::{SERVER, World, ms, named, until, within};

async fn declare(topology: &Topology) -> Result<(), SourceError> {
    within("a declaration", topology.declare(&SERVER.url())).await
}

fn of(kind: &str, value: i64) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("kind".into(), AMQPValue::LongString(kind.into()));
    headers.insert("size".into(), AMQPValue::LongLongInt(value));
    named("m").with_headers(headers)
}

#[tokio::test]
async fn a_declared_topology_routes_by_each_kind_of_exchange_and_may_be_declared_again() {
    let world = World::new("topology").await;
    let topology = Topology::new()
        .exchange(Exchange::direct("topology.direct"))
        .exchange(Exchange::topic("topology.topic"))
        .exchange(Exchange::fanout("topology.fanout"))
        .exchange(Exchange::headers("topology.headers").argument("alternate-exchange", "topology.fanout"))
        .queue(Queue::classic("topology.a"))
        .queue(Queue::quorum("topology.b"))
        .bind("topology.a", "topology.direct", "paid")
        .bind("topology.a", "topology.topic", "order.*.paid")
        .bind("topology.b", "topology.fanout", "")
        .bind_exchange("topology.fanout", "topology.direct", "sent")
        .bind_all_headers(
            "topology.a",
            "topology.headers",
            [("kind", FieldValue::from("invoice")), ("size", FieldValue::from(17))],
        )
        .bind_any_header("topology.b", "topology.headers", [("size", 17)]);
    for _ in 0..2 {
        declare(&topology).await.unwrap();
    }
    assert_eq!((world.count("topology.a.dead").await, world.count("topology.b.dead").await), (0, 0));
    for (exchange, key, properties, queues) in [
        ("topology.direct", "paid", named("m"), &["topology.a"][..]),
        ("topology.direct", "sent", named("m"), &["topology.b"]),
        ("topology.topic", "order.17.paid", named("m"), &["topology.a"]),
        ("topology.fanout", "any", named("m"), &["topology.b"]),
        ("topology.headers", "", of("invoice", 17), &["topology.a", "topology.b"]),
        ("topology.headers", "", of("letter", 17), &["topology.b"]),
        // Routed by the alternate exchange.
        ("topology.headers", "", of("invoice", 18), &["topology.b"]),
        ("topology.headers", "", of("letter", 18), &["topology.b"]),
    ] {
        world.send_to(exchange, key, b"{}", properties).await;
        for queue in ["topology.a", "topology.b"] {
            if queues.contains(&queue) {
                until("the message", async || world.take(queue).await).await;
            }
            assert!(world.take(queue).await.is_none(), "{exchange} {key} in {queue}");
        }
    }
    let publisher = RabbitPublisher::builder(SERVER.url()).build().unwrap();
    let nowhere = publisher.publish(&OutboundMessage::new(Route::exchange("topology.topic", "order"), "m", "")).await;
    assert_eq!(nowhere.unwrap_err().kind(), PublishErrorKind::Refused);
}

#[tokio::test]
async fn an_existing_item_with_other_settings_and_a_missing_item_are_errors_with_their_names() {
    let _world = World::new("topology.other").await;
    declare(&Topology::new().exchange(Exchange::topic("topology.other"))).await.unwrap();
    declare(&Topology::new().queue(Queue::classic("topology.other"))).await.unwrap();
    let new = Topology::new;
    for (topology, words) in [
        (new().exchange(Exchange::direct("topology.other")), ["exchange `topology.other`", "type"]),
        (new().exchange(Exchange::topic("topology.other").transient()), ["exchange `topology.other`", "durable"]),
        (new().queue(Queue::quorum("topology.other")), ["queue `topology.other`", "inequivalent arg"]),
        (new().queue(Queue::existing("topology.missing")), ["queue `topology.missing`", "no queue"]),
        (new().bind("topology.missing", "topology.other", "k"), ["`topology.missing`", "no queue"]),
        (new().bind("topology.other", "topology.absent", "k"), ["`topology.absent`", "no exchange"]),
    ] {
        let error = declare(&topology).await.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Fatal);
        let text = format!("{error}: {}", error.source().unwrap());
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    }
}

#[tokio::test]
async fn an_invalid_topology_is_refused_before_connecting() {
    let new = Topology::new;
    for (topology, words) in [
        (new().exchange(Exchange::fanout("")), "exchange: the name is empty or too long; use 1 to 255 bytes"),
        (new().queue(Queue::classic("")), "queue: the name is empty or too long; use 1 to"),
        (new().queue(Queue::classic("q").delayed_retry(ms(1), ms(2))), "only possible for a queue of Queue::quorum"),
        (new().queue(Queue::existing("q").delayed_retry(ms(1), ms(2))), "only possible for a queue of Queue::quorum"),
        (new().queue(Queue::quorum("q").delayed_retry(ms(0), ms(2))), "use 1 ms <= min <= max <= 1 day"),
        (new().queue(Queue::quorum("q").delayed_retry(ms(3), ms(2))), "use 1 ms <= min <= max <= 1 day"),
        (new().queue(Queue::quorum("q").delayed_retry(ms(1), ms(86_400_001))), "use 1 ms <= min <= max <= 1 day"),
        (new().bind("q", "", "k"), "the default exchange needs none"),
        (new().bind("q", "e", "k".repeat(256)), "use at most 255 bytes"),
        (new().bind_all_headers("q", "e", [("", ""); 0]), "the list of headers is empty"),
    ] {
        let error = topology.declare("amqp://guest:s3cret@127.0.0.1:1/%2f").await.unwrap_err();
        assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains(words), "{error}");
    }
    let error = new().declare("s3cret").await.unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && !error.to_string().contains("s3cret"), "{error}");
}

//! Dead letters equal the received messages, except for headers of this crate.
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Settlement};
use idempotent_rabbitmq::Queue;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, DecimalValue, FieldTable};

use crate::broker::world::{World, named};

pub fn every_type() -> FieldTable {
    let mut inner = FieldTable::default();
    inner.insert("deep".into(), AMQPValue::LongString("x".into()));
    let mut headers = FieldTable::default();
    for (name, value) in [
        ("bool", AMQPValue::Boolean(true)),
        ("i8", AMQPValue::ShortShortInt(-8)),
        ("u8", AMQPValue::ShortShortUInt(200)),
        ("i16", AMQPValue::ShortInt(-16_000)),
        ("u16", AMQPValue::ShortUInt(60_000)),
        ("i32", AMQPValue::LongInt(i32::MIN)),
        ("u32", AMQPValue::LongUInt(u32::MAX)),
        ("i64", AMQPValue::LongLongInt(i64::MIN)),
        ("f32", AMQPValue::Float(1.5)),
        ("f64", AMQPValue::Double(-0.1)),
        ("decimal", AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 12_345 })),
        ("text", AMQPValue::LongString("größe".into())),
        ("not utf-8", AMQPValue::LongString(vec![0, 255, 10].into())),
        ("bytes", AMQPValue::ByteArray(vec![0, 1, 255].into())),
        ("timestamp", AMQPValue::Timestamp(1_700_000_000)),
        ("list", AMQPValue::FieldArray(vec![AMQPValue::Void, AMQPValue::FieldTable(inner.clone())].into())),
        ("table", AMQPValue::FieldTable(inner)),
        ("void", AMQPValue::Void),
        ("", AMQPValue::Boolean(false)),
        ("zz after the own prefix", AMQPValue::Boolean(false)),
    ] {
        headers.insert(name.into(), value);
    }
    headers
}

#[tokio::test]
async fn a_dead_letter_has_body_headers_and_properties_byte_for_byte_after_any_number_of_retries() {
    let world = World::new("letters").await;
    let mut source = world.opened(Queue::classic("letters")).await;
    let body: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let properties = named("m-1")
        .with_headers(every_type())
        .with_content_type("application/octet-stream".into())
        .with_content_encoding("none".into())
        .with_priority(3)
        .with_correlation_id("c".into())
        .with_reply_to("r".into())
        .with_timestamp(1_700_000_000)
        .with_type("t".into())
        .with_app_id("a".into());
    world.send(&body, properties.clone()).await;
    let first = source.next().await;
    source
        .settle(&first, Settlement::Retry(idempotent_mq::Retry::after(crate::broker::world::ms(100), Timestamp(5))))
        .await
        .unwrap();
    let delivery = source.next().await;
    let mut letter = DeadLetter::because("no such customer", Timestamp(9));
    (letter.attempts, letter.id, letter.first_at) = (17, Some("hash-42".to_owned()), Timestamp(5));
    source.settle(&delivery, Settlement::DeadLetter(letter)).await.unwrap();
    let dead = world.dead().await;
    assert!(dead.data == body);
    let mut headers = dead.properties.headers().clone().unwrap().inner().clone();
    let own: Vec<_> = headers.extract_if(.., |name, _| name.as_str().starts_with("x-idempotent-")).collect();
    assert_eq!(FieldTable::from(headers.clone()), every_type());
    let without = |from: &BasicProperties| from.clone().with_headers(FieldTable::default()).with_delivery_mode(2);
    assert_eq!(without(&dead.properties), without(&properties));
    let number = AMQPValue::LongLongInt;
    let text = |text: &str| AMQPValue::LongString(text.into());
    let expected = [
        ("x-idempotent-attempts", number(17)),
        ("x-idempotent-deaths", number(1)),
        ("x-idempotent-first-at", number(5)),
        ("x-idempotent-id", text("hash-42")),
        ("x-idempotent-last-at", number(9)),
        ("x-idempotent-queue", text("letters")),
        ("x-idempotent-reason", text("no such customer")),
    ];
    assert_eq!(own, expected.map(|(name, value)| (name.into(), value)));
    // Published to its queue again, the message starts with its first attempt and has one death.
    world.send(&dead.data, dead.properties.clone()).await;
    let back = source.next().await;
    assert_eq!((back.0.attempt, back.0.deaths, back.0.headers.clone()), (Some(1), 1, delivery.0.headers.clone()));
}

#[tokio::test]
async fn a_dead_letter_does_not_expire() {
    let world = World::new("expiring").await;
    let mut source = world.opened(Queue::classic("expiring")).await;
    world.send(b"b", named("m").with_expiration("200".into())).await;
    let delivery = source.next().await;
    source.settle(&delivery, Settlement::DeadLetter(DeadLetter::because("why", Timestamp(9)))).await.unwrap();
    let dead = world.dead().await;
    assert!(dead.properties.expiration().is_none());
    let headers = dead.properties.headers().clone().unwrap();
    assert_eq!(headers.inner().get("x-idempotent-expiration"), Some(&AMQPValue::LongString("200".into())));
}

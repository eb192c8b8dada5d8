//! Retries by copies in retry queues.
use std::time::Instant;

use idempotent_core::Timestamp;
use idempotent_mq::{Retry, Settlement, Source, SourceErrorKind};
use idempotent_rabbitmq::{Queue, QueueKind};
use lapin::types::{AMQPValue, FieldTable};

use crate::broker::world::{ManualSource, SERVER, World, ms, named, until};

#[tokio::test]
async fn a_retried_message_is_redelivered_after_its_delay_and_not_before() {
    let world = World::new("delays").await;
    let mut source = world.opened(Queue::classic("delays")).await;
    for asked in [200, 500, 1_000] {
        world.send(b"\x00body", named("m")).await;
        let first = source.next().await;
        let start = Instant::now();
        source.settle(&first, Settlement::Retry(Retry::after(ms(asked), Timestamp(17)))).await.unwrap();
        let second = source.next().await;
        assert!(start.elapsed() >= ms(asked), "after {:?} of {asked} ms", start.elapsed());
        assert_eq!((first.0.attempt, second.0.attempt), (Some(1), Some(2)));
        assert_eq!(
            (second.0.first_at, &second.0.body[..], second.0.id.as_deref()),
            (Some(Timestamp(17)), &b"\0body"[..], Some("m"))
        );
        assert!(second.0.headers.is_empty(), "{:?}", second.0.headers);
        source.settle(&second, Settlement::Ack).await.unwrap();
    }
    // An unacknowledged message would be redelivered here first.
    source.0.close().await;
    drop(source);
    let mut source = world.opened(Queue::classic("delays")).await;
    world.send(b"last", named("last")).await;
    assert_eq!(source.next().await.0.id.as_deref(), Some("last"));
}

#[tokio::test]
async fn a_copy_equals_the_message_and_reaches_no_other_queue() {
    let world = World::new("copies").await;
    world.declare("copies.other").await;
    let mut source = world.opened(Queue::classic("copies")).await;
    let other = AMQPValue::FieldArray(vec![AMQPValue::LongString("copies.other".into())].into());
    let mut headers = FieldTable::default();
    headers.insert("CC".into(), other);
    headers.insert("tenant".into(), AMQPValue::LongString("acme".into()));
    // With these properties, a copy could expire during its delay, or be rejected.
    let properties = named("m").with_headers(headers).with_expiration("60000".into()).with_user_id("guest".into());
    world.send(b"b", properties).await;
    assert_eq!(world.count("copies.other").await, 1, "the broker routes by CC");
    let mut delivery = source.next().await;
    let (headers, end) = (delivery.0.headers.clone(), delivery.0.expires_at);
    for attempt in 2..5 {
        let mut retry = Retry::after(ms(100), Timestamp(17));
        retry.attempt = attempt;
        source.settle(&delivery, Settlement::Retry(retry)).await.unwrap();
        delivery = source.next().await;
        assert_eq!((delivery.0.attempt, delivery.0.expires_at), (Some(attempt), end));
        assert_eq!(delivery.0.headers, headers);
    }
    assert_eq!(headers.first("CC"), Some(&b"copies.other"[..]));
    assert_eq!(world.count("copies.other").await, 1);
}

#[tokio::test]
async fn a_retry_with_a_deleted_queue_is_not_acknowledged_and_succeeds_at_the_second_attempt() {
    let world = World::new("deleted").await;
    let mut source = world.opened(Queue::classic("deleted")).await;
    world.send_id("a").await;
    let first = source.next().await;
    let retry = Settlement::Retry(Retry::after(ms(100), Timestamp(17)));
    source.settle(&first, retry.clone()).await.unwrap();
    let second = source.next().await;
    world.delete("deleted.retry.100").await;
    // The broker returns the copy and then confirms it. The confirm alone would look like success.
    let refused = source.settle(&second, retry.clone()).await.unwrap_err();
    assert_eq!(refused.kind(), SourceErrorKind::Transient, "{refused}");
    source.settle(&second, retry).await.unwrap();
    let third = source.next().await;
    assert_eq!(third.0.id.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_delivery_that_is_given_back_is_redelivered_to_another_consumer_at_once() {
    let world = World::new("given-back").await;
    let mut first = world.opened(Queue::classic("given-back")).await;
    world.send_id("a").await;
    let delivery = first.next().await;
    first.0.close().await;
    let mut second = ManualSource(world.source(), world.queue.clone());
    first.settle(&delivery, Settlement::GiveBack).await.unwrap();
    let again = second.next().await;
    assert!(again.0.redelivered && again.0.attempt == Some(1));
}

#[tokio::test]
async fn a_quorum_queue_counts_the_deliveries_of_each_copy_and_a_classic_queue_counts_none() {
    let world = World::new("quorum").await;
    let mut source = world.opened(Queue::quorum("quorum")).await;
    assert!(source.0.capabilities().counts && !world.source().capabilities().counts);
    world.send_id("a").await;
    let first = source.next().await;
    assert_eq!(first.0.delivered, Some(1));
    source.settle(&first, Settlement::GiveBack).await.unwrap();
    let second = source.next().await;
    assert_eq!((second.0.delivered, second.0.headers.len()), (Some(2), 0));
    let asked = Instant::now();
    source.settle(&second, Settlement::Retry(Retry::after(ms(500), Timestamp(17)))).await.unwrap();
    let third = source.next().await;
    assert!(asked.elapsed() >= ms(500));
    assert_eq!((third.0.delivered, third.0.attempt, third.0.headers.len()), (Some(1), Some(2), 0));
    source.settle(&third, Settlement::Ack).await.unwrap();
}

#[tokio::test]
async fn a_quorum_retry_queue_keeps_a_copy_until_the_consumed_queue_exists() {
    let world = World::new("handover").await;
    // The interval of its attempts is three minutes by default.
    let setting = "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, 500), \"done\".";
    tokio::task::spawn_blocking(move || SERVER.eval(setting)).await.unwrap();
    let queue = || Queue::existing("handover").auxiliary_kind(QueueKind::Quorum);
    world.declare("handover").await;
    let mut source = world.opened(queue()).await;
    world.send_id("a").await;
    let first = source.next().await;
    source.settle(&first, Settlement::Retry(Retry::after(ms(1_000), Timestamp(17)))).await.unwrap();
    world.delete("handover").await;
    drop(source);
    // The copy is due and its queue is missing.
    until("it is due", async || (world.count("handover.retry.1000").await == 0).then_some(())).await;
    world.declare("handover").await;
    let mut source = ManualSource(world.source_of(queue()), world.queue.clone());
    assert_eq!(source.next().await.0.id.as_deref(), Some("a"));
}

/// The broker drops a message that returns to a queue of its `x-death` header without a rejection by a consumer, to
/// prevent cycles. A producer may have set this header, or an earlier death of the message.
#[tokio::test]
async fn a_message_with_an_earlier_death_in_this_queue_is_redelivered_after_its_delay() {
    let world = World::new("died-before").await;
    let mut death = FieldTable::default();
    for (name, value) in [("queue", "died-before"), ("reason", "expired"), ("exchange", "")] {
        death.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    death.insert("count".into(), AMQPValue::LongLongInt(1));
    let keys = vec![AMQPValue::LongString("died-before".into())];
    death.insert("routing-keys".into(), AMQPValue::FieldArray(keys.into()));
    let mut headers = FieldTable::default();
    headers.insert("x-death".into(), AMQPValue::FieldArray(vec![AMQPValue::FieldTable(death)].into()));
    let mut source = world.opened(Queue::classic("died-before")).await;
    world.send(b"b", named("m").with_headers(headers)).await;
    let mut delivery = source.next().await;
    let headers = delivery.0.headers.clone();
    assert_eq!(headers.first("x-death.reason"), Some(&b"expired"[..]));
    for attempt in 2..5 {
        let mut retry = Retry::after(ms(100), Timestamp(17));
        retry.attempt = attempt;
        source.settle(&delivery, Settlement::Retry(retry)).await.unwrap();
        delivery = source.next().await;
        assert_eq!((delivery.0.attempt, &delivery.0.headers), (Some(attempt), &headers));
    }
}

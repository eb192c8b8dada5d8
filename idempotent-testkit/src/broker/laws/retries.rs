//! Laws about retries and returned deliveries.
use idempotent_mq::Settlement;
use tokio::time::Instant;

use super::super::hand::{FIRST_AT, Hand, as_sent, retry, rich};
use super::super::{Broker, Message};

pub async fn a_retry_is_delivered_after_its_delay_and_never_before<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let limits = broker.limits();
    broker.publish(Message::new("m", "body")).await;
    let mut held = hand.expect("m").await;
    for attempt in 2..5 {
        let told = Instant::now();
        hand.done(held, retry(broker, attempt)).await;
        held = hand.expect("m").await;
        let after = told.elapsed();
        assert!(after + limits.early >= limits.delay, "it came after {after:?} of {:?}", limits.delay);
    }
    hand.ack(held).await;
    hand.leave_nothing(broker).await;
}

pub async fn a_retry_leaves_attempt_and_first_seen<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    broker.publish(Message::new("m", "body")).await;
    let mut held = hand.expect("m").await;
    assert_eq!((held.0.attempt, held.0.deaths), (Some(1), 0), "as it comes first");
    for attempt in [2, 3, 70_000] {
        hand.done(held, retry(broker, attempt)).await;
        held = hand.expect("m").await;
        assert_eq!((held.0.attempt, held.0.first_at), (Some(attempt), Some(FIRST_AT)));
    }
    hand.ack(held).await;
    hand.leave_nothing(broker).await;
}

pub async fn a_retry_keeps_id_body_and_headers_byte_for_byte<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let sent = rich("m");
    broker.publish(sent.clone()).await;
    let mut held = hand.next().await;
    let headers = held.0.headers.clone();
    for attempt in 2..5 {
        hand.done(held, retry(broker, attempt)).await;
        held = hand.next().await;
        as_sent(&held.0, &sent);
        assert!(held.0.headers == headers, "the headers are in another order");
    }
    hand.ack(held).await;
    hand.leave_nothing(broker).await;
}

pub async fn a_postponed_delivery_is_the_same_attempt<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    broker.publish(Message::new("m", "body")).await;
    let mut held = hand.expect("m").await;
    for attempt in [1, 1, 1, 2, 2] {
        hand.done(held, retry(broker, attempt)).await;
        held = hand.expect("m").await;
        assert_eq!(held.0.attempt, Some(attempt), "a deferred delivery is not an attempt");
    }
    hand.ack(held).await;
    hand.leave_nothing(broker).await;
}

pub async fn a_returned_delivery_is_redelivered_unchanged<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let sent = rich("m");
    broker.publish(sent.clone()).await;
    let mut held = hand.next().await;
    let attempt = held.0.attempt;
    for _ in 0..3 {
        hand.done(held, Settlement::GiveBack).await;
        held = hand.next().await;
        as_sent(&held.0, &sent);
        assert_eq!(held.0.attempt, attempt, "a returned delivery is not an attempt");
    }
    hand.ack(held).await;
    hand.leave_nothing(broker).await;
}

pub async fn the_attempts_of_a_retry_survive_a_return<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    broker.publish(Message::new("m", "body")).await;
    let mut held = hand.expect("m").await;
    hand.done(held, retry(broker, 3)).await;
    for _ in 0..2 {
        held = hand.expect("m").await;
        assert_eq!((held.0.attempt, held.0.first_at), (Some(3), Some(FIRST_AT)));
        hand.done(held, Settlement::GiveBack).await;
    }
    held = hand.expect("m").await;
    hand.ack(held).await;
    hand.leave_nothing(broker).await;
}

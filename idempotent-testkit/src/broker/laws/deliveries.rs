//! Laws about deliveries and redeliveries.
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Settlement};

use super::super::hand::{Hand, as_sent, aside, by_name, retry, rich};
use super::super::{Broker, Message};

pub async fn an_acknowledged_delivery_is_never_redelivered<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    for id in ["a", "b"] {
        broker.publish(Message::new(id, "body")).await;
        let held = hand.expect(id).await;
        hand.ack(held).await;
    }
    hand.leave_nothing(broker).await;
}

pub async fn a_body_arrives_unchanged<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let noise = (0..).map(|n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]);
    let long: Vec<u8> = noise.take(broker.limits().longest_body).collect();
    let bodies = [Vec::new(), vec![0], (0..=255).collect(), b"\xff\xfe{\"a\": \r\n\0}".to_vec(), long];
    for (number, body) in bodies.into_iter().enumerate() {
        let sent = Message::new(format!("m-{number}"), body);
        broker.publish(sent.clone()).await;
        let held = hand.next().await;
        as_sent(&held.0, &sent);
        hand.done(held, retry(broker, 2)).await;
        let again = hand.next().await;
        as_sent(&again.0, &sent);
        hand.ack(again).await;
    }
    hand.leave_nothing(broker).await;
}

pub async fn headers_arrive_unchanged<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    for sent in [rich("many"), Message::new("none", "body")] {
        broker.publish(sent.clone()).await;
        let held = hand.next().await;
        as_sent(&held.0, &sent);
        assert_eq!(held.0.deaths, 0, "it was never dead-lettered");
        hand.ack(held).await;
    }
    hand.leave_nothing(broker).await;
}

pub async fn repeated_headers_arrive_in_order<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let sent = Message::new("m", "body").header("via", "second").header("b", "x").header("via", "first");
    broker.publish(sent.clone()).await;
    let held = hand.next().await;
    as_sent(&held.0, &sent);
    hand.done(held, retry(broker, 2)).await;
    let again = hand.next().await;
    as_sent(&again.0, &sent);
    hand.done(again, Settlement::DeadLetter(DeadLetter::because("as told", Timestamp(9)))).await;
    let kept = aside(broker, 1).await.remove(0).0;
    assert_eq!(by_name(&kept.headers), by_name(&sent.headers), "of the dead letter");
    hand.leave_nothing(broker).await;
}

pub async fn a_receive_returns_at_most_the_requested_number<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    for number in 0..9 {
        broker.publish(Message::new(format!("{number}"), "")).await;
    }
    let mut came = Vec::new();
    // The first receive sets the maximum number of held messages. A source with pushed messages then has more in stock
    // than later calls request.
    for room in [4, 1, 1, 2, 1, 1, 1, 1, 1] {
        if came.len() == 9 {
            break;
        }
        let taken = hand.take(room).await;
        assert!(taken.len() <= room, "{} came, and there is room for {room}", taken.len());
        for held in taken {
            came.push(held.0.id.clone().unwrap());
            hand.ack(held).await;
        }
    }
    came.sort();
    assert_eq!(came.concat(), "012345678");
    hand.leave_nothing(broker).await;
}

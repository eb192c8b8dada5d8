//! Laws about the deliveries of a consumer that ends.
use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use idempotent_mq::{Received, Settlement, Source, SourceErrorKind};

use super::super::hand::{Hand, as_sent, emptied, rich};
use super::super::{Broker, Message};

pub async fn an_unsettled_delivery_is_redelivered_after_the_end_of_its_consumer<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let sent = rich("m");
    broker.publish(sent.clone()).await;
    let held = hand.next().await;
    let (headers, attempt) = (held.0.headers.clone(), held.0.attempt);
    // A killed process closes nothing and returns nothing. Without a visibility timeout, the end of its connection counts.
    match broker.limits().held_for {
        Some(_) => std::mem::forget((held, hand)),
        None => drop((held, hand)),
    }
    let mut other = Hand::of(broker).await;
    let again = other.next().await;
    as_sent(&again.0, &sent);
    assert_eq!((again.0.headers == headers, again.0.attempt), (true, attempt), "the same as before");
    other.ack(again).await;
    other.leave_nothing(broker).await;
}

pub async fn a_delivery_dropped_unsettled_is_redelivered<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let sent = rich("m");
    broker.publish(sent.clone()).await;
    // A run whose message could not be settled. Its consumer continues.
    drop(hand.expect("m").await);
    let again = hand.next().await;
    as_sent(&again.0, &sent);
    assert!(again.0.attempt.is_none_or(|attempt| attempt == 1), "it was no attempt");
    hand.ack(again).await;
    hand.leave_nothing(broker).await;
}

pub async fn deliveries_of_a_cut_connection_are_redelivered<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    broker.publish(rich("m")).await;
    let mut old = Some(hand.expect("m").await);
    broker.cut().await;
    if let Some(held) = old.take_if(|_| broker.limits().stays_held) {
        // The delivery still belongs to this consumer, and returns only if it is left alone.
        hand.ack(held).await;
        emptied(broker).await;
        broker.publish(rich("m")).await;
        let left = hand.expect("m").await;
        broker.cut().await;
        drop(left);
    }
    // The source opens a new connection for this.
    let new = hand.expect("m").await;
    if let Some(old) = old {
        let settled = hand.settle(&old, &Settlement::Ack).await;
        let settled = settled.expect_err("a delivery lost by the cut was acknowledged");
        assert_eq!(settled.kind(), SourceErrorKind::Gone, "another try would not help");
    }
    as_sent(&new.0, &rich("m"));
    hand.ack(new).await;
    hand.leave_nothing(broker).await;
}

pub async fn settling_after_the_end_of_the_consumer_is_done_or_refused<B: Broker>(broker: &B) {
    for how in [Settlement::Ack, Settlement::GiveBack] {
        let mut hand = Hand::of(broker).await;
        broker.publish(Message::new("m", "body")).await;
        let held = hand.expect("m").await;
        hand.close().await;
        let settled = {
            let Hand { settler, source, .. } = hand;
            drop(source);
            settler.settle(&held.0, &held.1, &how).await
        };
        if settled.is_ok() && how == Settlement::Ack {
            emptied(broker).await;
            continue;
        }
        drop(held);
        let mut other = Hand::of(broker).await;
        let again = other.expect("m").await;
        other.ack(again).await;
        other.leave_nothing(broker).await;
    }
}

pub async fn closing_returns_undelivered_messages<B: Broker>(broker: &B) {
    let mut first = Hand::of(broker).await;
    let publish = async |from: u32, to: u32| {
        for number in from..to {
            broker.publish(Message::new(format!("{number}"), "")).await;
        }
    };
    // The maximum number of held deliveries.
    publish(0, 1).await;
    let mut taken = first.take(4).await;
    first.ack(taken.remove(0)).await;
    emptied(broker).await;
    publish(1, 5).await;
    let held = first.take(1).await.remove(0);
    first.close().await;
    // Deliveries that were handed over stay held.
    let mut second = Hand::of(broker).await;
    let mut came = Vec::new();
    for _ in 0..3 {
        let next = second.next().await;
        came.push(next.0.id.clone().unwrap());
        second.ack(next).await;
    }
    came.push(held.0.id.clone().unwrap());
    came.sort();
    assert_eq!(came.concat(), "1234");
    first.ack(held).await;
    emptied(broker).await;
    second.leave_nothing(broker).await;
}

pub async fn a_dropped_receive_loses_no_delivery<B: Broker>(broker: &B) {
    let mut first = Hand::of(broker).await;
    broker.publish(Message::new("0", "")).await;
    let held = first.take(4).await.remove(0);
    first.ack(held).await;
    {
        // The receive waits while four messages arrive, and is then dropped.
        let mut receive = pin!(first.source.receive(4));
        let mut publish = pin!(async {
            for number in 1..5 {
                broker.publish(Message::new(format!("{number}"), "")).await;
            }
        });
        let (mut got, mut there) = (None, false);
        std::future::poll_fn(|context| {
            there = there || publish.as_mut().poll(context).is_ready();
            if got.is_none()
                && let Poll::Ready(received) = receive.as_mut().poll(context)
            {
                got = Some(received);
            }
            if there { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        // The deliveries that it returned stay unsettled.
        drop(got.map(|received| received.map(|received| matches!(received, Received::Deliveries(_)))));
    }
    first.close().await;
    drop(first);
    let mut second = Hand::of(broker).await;
    let mut came = Vec::new();
    for _ in 0..4 {
        let next = second.next().await;
        came.push(next.0.id.clone().unwrap());
        second.ack(next).await;
    }
    came.sort();
    assert_eq!(came.concat(), "1234");
    second.leave_nothing(broker).await;
}

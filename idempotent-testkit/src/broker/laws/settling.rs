//! Laws about settling out of order and twice, and about long holds.
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Received, Settlement, Source};
use tokio::time::{Instant, sleep};

use super::super::hand::{Hand, PAUSE, aside, emptied, retry};
use super::super::{Broker, Message};

pub async fn deliveries_are_settled_in_any_order<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    for id in ["a", "b", "c"] {
        broker.publish(Message::new(id, "body")).await;
    }
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(hand.next().await);
    }
    held.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    let [a, b, c]: [_; 3] = held.try_into().unwrap_or_else(|_| panic!("three are held"));
    hand.ack(c).await;
    hand.done(b, retry(broker, 2)).await;
    hand.ack(a).await;
    let again = hand.expect("b").await;
    hand.ack(again).await;
    hand.leave_nothing(broker).await;
}

pub async fn deliveries_are_settled_concurrently<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let mut held = Vec::new();
    for id in ["a", "b", "c", "d"] {
        broker.publish(Message::new(id, "body")).await;
        held.push(hand.expect(id).await);
    }
    let [a, b, c, d]: [_; 4] = held.try_into().unwrap_or_else(|_| panic!("four are held"));
    tokio::join!(
        hand.done(a, Settlement::Ack),
        hand.done(b, retry(broker, 2)),
        hand.done(c, Settlement::DeadLetter(DeadLetter::because("as told", Timestamp(9)))),
        hand.done(d, Settlement::GiveBack),
    );
    let mut came = Vec::new();
    for _ in 0..2 {
        let again = hand.next().await;
        came.extend(again.0.id.clone());
        hand.ack(again).await;
    }
    came.sort();
    assert_eq!(came.concat(), "bd", "what comes again");
    assert_eq!(aside(broker, 1).await[0].0.id, "c");
    hand.leave_nothing(broker).await;
}

pub async fn settling_twice_has_one_effect<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let letter = DeadLetter::because("as told", Timestamp(9));
    for how in [Settlement::Ack, retry(broker, 2), Settlement::DeadLetter(letter), Settlement::GiveBack] {
        broker.publish(Message::new("m", "body")).await;
        let held = hand.expect("m").await;
        hand.settle(&held, &how).await.unwrap();
        // Any answer is allowed: the settlement may succeed, or the delivery may no longer belong to this consumer.
        drop(hand.settle(&held, &how).await);
        drop(held);
        if matches!(how, Settlement::Retry(_) | Settlement::GiveBack) {
            let again = hand.expect("m").await;
            hand.ack(again).await;
        }
        emptied(broker).await;
    }
    aside(broker, 1).await;
    hand.leave_nothing(broker).await;
}

pub async fn an_extended_delivery_is_held_beyond_the_brokers_limit<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let every = hand.source.capabilities().keep_alive;
    let every = every.expect("this source need not be kept alive: leave this law out by `without`");
    let limit = broker.limits().held_for.expect("set `Limits::held_for`, the broker's limit for a held delivery");
    assert!(every * 3 <= limit, "{every:?} is more than a third of {limit:?}, so no call may fail");
    broker.publish(Message::new("m", "body")).await;
    let held = hand.expect("m").await;
    let mut other = Hand::of(broker).await;
    let end = Instant::now() + limit * 3;
    while Instant::now() < end {
        hand.settler.keep_alive(&[&held.1]).await.unwrap();
        // A source that searches for abandoned deliveries does so now.
        let looks = async {
            loop {
                match other.source.receive(1).await {
                    // The source's own wait has ended.
                    Ok(Received::Deliveries(none)) if none.is_empty() => sleep(PAUSE).await,
                    _ => panic!("a delivery that was kept alive was taken away"),
                }
            }
        };
        tokio::select! {
            () = looks => {}
            () = sleep(every) => {}
        }
    }
    hand.ack(held).await;
    other.close().await;
    hand.leave_nothing(broker).await;
}

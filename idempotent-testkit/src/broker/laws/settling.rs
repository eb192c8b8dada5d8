//! Laws about settling out of order and twice, and about long holds.
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Received, Settlement, Source, SourceErrorKind};
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

pub async fn a_late_settlement_brings_no_message_back<B: Broker>(broker: &B) {
    let limit = broker.limits().held_for;
    limit.expect("set `Limits::held_for`, or leave this law out by `without` if the broker takes nothing back");
    let letter = DeadLetter::because("too late", Timestamp(9));
    let ways = [Settlement::Ack, retry(broker, 2), Settlement::DeadLetter(letter), Settlement::GiveBack];
    let ids: Vec<_> = ways.iter().map(Settlement::name).collect();
    for id in &ids {
        broker.publish(Message::new(*id, "body")).await;
    }
    let (mut late, mut next) = (Hand::of(broker).await, Hand::of(broker).await);
    let lost = late.all(&ids).await;
    // Nothing keeps them alive, so the broker delivers them again.
    let held = next.all(&ids).await;
    let tags: Vec<_> = lost.iter().map(|(_, tag)| tag).collect();
    late.settler.keep_alive(&tags).await.expect("extending a lost delivery is no error");
    let mut letters = 0;
    for ((lost, held), way) in lost.iter().zip(&held).zip(&ways) {
        let settled = late.settle(lost, way).await;
        let acked = next.settle(held, &Settlement::Ack).await;
        // A broker that names the message and not the delivery accepts the first consumer's settlement, too. It may then refuse the
        // second one's, but neither may make the message come again.
        for (result, may_be_lost) in [(&settled, true), (&acked, settled.is_ok())] {
            if let Err(error) = result {
                let is_lost = may_be_lost && error.kind() == SourceErrorKind::Gone;
                assert!(is_lost, "after a late `{}`: {error}", way.name());
            }
        }
        letters += usize::from(settled.is_ok() && matches!(way, Settlement::DeadLetter(_)));
    }
    aside(broker, letters).await;
    emptied(broker).await;
    late.close().await;
    next.leave_nothing(broker).await;
}

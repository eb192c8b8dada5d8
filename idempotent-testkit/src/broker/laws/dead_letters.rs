//! Laws about dead letters, redriving and removing them.
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Redrive, Settlement};
use tokio::time::timeout;

use super::super::hand::{FIRST_AT, Hand, PAUSE, as_sent, aside, by_name, put_back, retry, rich, until, within};
use super::super::{Broker, Message};
use super::consumer::each_run;

fn letter() -> DeadLetter {
    let mut letter = DeadLetter::because("no such customer: größe", Timestamp(FIRST_AT.0 + 9));
    (letter.id, letter.attempts) = (Some("0f1e2d-42".to_owned()), 17);
    (letter.first_at, letter.deaths) = (FIRST_AT, 2);
    letter
}

pub async fn a_dead_letter_keeps_id_body_and_headers_byte_for_byte<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let sent = [rich("at once"), rich("after a retry"), Message::new("empty", "")];
    for message in &sent {
        broker.publish(message.clone()).await;
        let mut held = hand.expect(&message.id).await;
        if message.id.contains("retry") {
            hand.done(held, retry(broker, 2)).await;
            held = hand.expect(&message.id).await;
        }
        hand.done(held, Settlement::DeadLetter(letter())).await;
    }
    hand.leave_nothing(broker).await;
    let mut found = aside(broker, sent.len()).await;
    for message in &sent {
        let at = found.iter().position(|(found, _)| found.id == message.id);
        let (kept, _) = found.swap_remove(at.unwrap_or_else(|| panic!("`{}` is not among the dead", message.id)));
        assert!(kept.body == message.body, "the body of `{}` is another", message.id);
        assert_eq!(by_name(&kept.headers), by_name(&message.headers), "headers of `{}`", message.id);
    }
}

pub async fn a_dead_letter_states_reason_time_and_attempts<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    broker.publish(Message::new("m", "body")).await;
    let held = hand.expect("m").await;
    hand.done(held, Settlement::DeadLetter(letter())).await;
    assert_eq!(aside(broker, 1).await[0].1, letter());
    hand.leave_nothing(broker).await;
}

pub async fn a_redriven_dead_letter_is_a_first_attempt_with_its_history<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let sent = rich("m");
    broker.publish(sent.clone()).await;
    let held = hand.next().await;
    // The attempt, or `None` if the broker has no place for it.
    let attempt = |number| held.0.attempt.map(|_| number);
    let (first, second) = (attempt(1), attempt(2));
    hand.done(held, retry(broker, 5)).await;
    let held = hand.next().await;
    hand.done(held, Settlement::DeadLetter(letter())).await;
    aside(broker, 1).await;
    put_back(broker).await;
    let back = hand.next().await;
    as_sent(&back.0, &sent);
    let marks = |held: &idempotent_mq::Delivery| (held.attempt, held.deaths, held.first_at);
    assert_eq!(marks(&back.0), (first, 2, Some(FIRST_AT)), "attempt, deaths, first seen");
    // The marks survive a retry.
    hand.done(back, retry(broker, 2)).await;
    let again = hand.next().await;
    assert_eq!(marks(&again.0), (second, 2, Some(FIRST_AT)), "attempt, deaths, first seen");
    hand.ack(again).await;
    hand.leave_nothing(broker).await;
    aside(broker, 0).await;
}

pub async fn a_discarded_dead_letter_never_returns<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    bury(broker, &mut hand, ["first", "discarded", "last"]).await;
    let mut letters = broker.letters();
    let discard = Redrive::new().only(|letter| letter.delivery.body == b"discarded").discarding();
    let discarded = discard.run(&mut *letters).await;
    assert!(discarded.failed.is_none() && discarded.discarded == 1, "{discarded:?}");
    letters.close().await;
    let mut left: Vec<_> = aside(broker, 2).await.into_iter().map(|(message, _)| message.id).collect();
    left.sort();
    assert_eq!(left, ["first", "last"], "the other dead letters stay");
    put_back(broker).await;
    let mut back = Vec::new();
    for _ in 0..2 {
        let held = hand.next().await;
        back.extend(held.0.id.clone());
        hand.ack(held).await;
    }
    back.sort();
    assert_eq!(back, ["first", "last"], "the discarded one does not return");
    hand.leave_nothing(broker).await;
    aside(broker, 0).await;
}

/// Publishes messages with these ids as their bodies, and dead-letters them.
async fn bury<B: Broker, const N: usize>(broker: &B, hand: &mut Hand<B>, ids: [&str; N]) {
    for id in ids {
        broker.publish(Message::new(id, id)).await;
        let held = hand.expect(id).await;
        hand.done(held, Settlement::DeadLetter(letter())).await;
    }
    aside(broker, N).await;
}

/// Allows two answers: the adapter puts each letter back once, or twice with the same id.
pub async fn two_redrives_at_once_put_each_letter_back_once<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    let ids = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    bury(broker, &mut hand, ids).await;
    hand.close().await;
    drop(hand);
    let (mut first, mut second, redrive) = (broker.letters(), broker.letters(), Redrive::new());
    let both = async { tokio::join!(redrive.run(&mut *first), redrive.run(&mut *second)) };
    let (one, other) = within(broker, "two redrives", both).await;
    assert!(one.failed.is_none() && other.failed.is_none(), "{one:?} {other:?}");
    first.close().await;
    second.close().await;
    // A letter that one of them has read may be back only now.
    put_back(broker).await;
    aside(broker, 0).await;
    let came = each_run(broker, ids.len()).await;
    assert_eq!(came, ids, "each letter is put back as one message");
}

pub async fn letters_that_were_read_are_there_after_their_handle_is_closed<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    bury(broker, &mut hand, ["0", "1", "2"]).await;
    for _ in 0..2 {
        until(broker, "all letters are read", async || {
            let mut letters = broker.letters();
            let mut bodies = Vec::new();
            while let Some(letter) = letters.next().await.unwrap() {
                bodies.push(letter.delivery.body);
            }
            letters.close().await;
            bodies.sort();
            (bodies == [b"0", b"1", b"2"]).then_some(())
        })
        .await;
    }
    hand.leave_nothing(broker).await;
}

/// Allows two answers: the adapter dead-letters the message, or delivers the readable part, which a handler then rejects.
pub async fn an_unreadable_message_is_dead_lettered_and_blocks_nothing<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    broker.publish_unreadable().await;
    broker.publish(Message::new("readable", "body")).await;
    let mut has_come = false;
    let what = "the unreadable message is a dead letter, and the readable one comes";
    until(broker, what, async || {
        // Dropping a receive loses no message.
        if let Ok(held) = timeout(PAUSE * 5, hand.next()).await {
            if held.0.id.as_deref() == Some("readable") {
                assert!(!has_come, "the readable message came twice");
                has_come = true;
                hand.ack(held).await;
            } else {
                hand.done(held, Settlement::DeadLetter(letter())).await;
            }
        }
        (has_come && !broker.dead_letters().await.is_empty()).then_some(())
    })
    .await;
    assert!(!aside(broker, 1).await[0].1.reason.is_empty(), "the dead letter has no reason");
    hand.leave_nothing(broker).await;
}

pub async fn what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message<B: Broker>(broker: &B) {
    let mut hand = Hand::of(broker).await;
    broker.publish_forged().await;
    let held = hand.expect("forged").await;
    assert!(held.0.attempt.is_none_or(|attempt| attempt == 1), "{:?}", held.0.attempt);
    hand.done(held, retry(broker, 2)).await;
    let held = hand.expect("forged").await;
    assert!(held.0.attempt.is_none_or(|attempt| attempt == 2), "{:?}", held.0.attempt);
    hand.done(held, Settlement::DeadLetter(DeadLetter::because("no stock", FIRST_AT))).await;
    let letter = aside(broker, 1).await.remove(0).1;
    assert_eq!((&*letter.reason, letter.attempts), ("no stock", 1));
    put_back(broker).await;
    let held = hand.expect("forged").await;
    assert!(held.0.attempt.is_none_or(|attempt| attempt == 1), "{:?}", held.0.attempt);
    hand.ack(held).await;
    hand.leave_nothing(broker).await;
}

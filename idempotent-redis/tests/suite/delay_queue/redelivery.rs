//! Redelivery of messages: rollbacks, expired deliveries and retries.
use idempotent_mq::{Cancelled, DeadLetter, Delivery, Received, Retry, Settlement, Source, SourceErrorKind};
use idempotent_redis::{
    DelayDelivery, DelayMessage, DelayReceiver, DelaySource, RetryDelay, RollbackResult, SettleResult,
};

use crate::delay_queue::world::{MINUTE, World, due, letters, ms, new, only, time};

async fn one(receiver: &mut DelayReceiver) -> DelayDelivery {
    only(receiver.receive_now(10).await.unwrap())
}

pub(crate) async fn a_taken_message_is_held_until_it_is_committed(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    let message =
        DelayMessage::after(ms(0), vec![0, 255, b'\n']).business_key("order-17").header("a", "1").header("a", "");
    new(queue.send(&message).await.unwrap());
    let taken = one(&mut receiver).await;
    assert_eq!((&*taken.body, taken.business_key.as_deref()), (&[0, 255, b'\n'][..], Some("order-17")));
    assert_eq!(taken.headers.all("a").collect::<Vec<_>>(), [&b"1"[..], b""]);
    assert_eq!((taken.attempt, taken.delivered, taken.deaths, taken.first_at), (1, 1, 0, time(0)));
    assert_eq!(world.look("ZCARD", "held", &[]).integer(), Some(1));
    assert!(due(&mut receiver).await.is_empty(), "nobody else gets it");
    let counts = queue.counts().await.unwrap();
    assert_eq!((counts.ready, counts.waiting, counts.in_flight, counts.oldest), (0, 0, 1, None));
    assert_eq!(queue.commit(&taken).await.unwrap(), SettleResult::Done);
    assert_eq!(queue.commit(&taken).await.unwrap(), SettleResult::Lost, "it was settled already");
    assert_eq!(queue.counts().await.unwrap().in_flight, 0);
    for part in ["due", "rank", "held", "msg", "state", "ids", "dead", "letter"] {
        assert_eq!(world.look("EXISTS", part, &[]).integer(), Some(0), "{part} is left behind");
    }
}

pub(crate) async fn an_unsettled_message_is_redelivered_at_the_timeout_and_not_before(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    new(queue.send(&DelayMessage::after(ms(0), "timed")).await.unwrap());
    new(queue.send(&DelayMessage::priority(99, "ranked")).await.unwrap());
    // Late in a second: a timeout rounded to seconds would expire after 59.001 s.
    world.at(999);
    let first = receiver.receive_now(10).await.unwrap();
    assert_eq!(first.len(), 2);
    world.at(999 + 59_001);
    assert!(due(&mut receiver).await.is_empty());
    world.at_micros(60_998_999);
    assert!(due(&mut receiver).await.is_empty());
    world.at(60_999);
    let again = receiver.receive_now(10).await.unwrap();
    assert_eq!(again.len(), 2, "both are there at the timeout");
    for taken in &again {
        assert_eq!((taken.attempt, taken.delivered, taken.first_at), (2, 2, time(999)), "it counts as an attempt");
        assert!(taken.last_error.as_deref().unwrap().contains("in time"));
    }
}

pub(crate) async fn an_expired_delivery_cannot_affect_the_next_one(world: &World) {
    let queue = world.queue().await;
    let (mut receiver, mut other) = (queue.receiver(), queue.receiver());
    new(queue.send(&DelayMessage::after(ms(0), "m")).await.unwrap());
    let lost = one(&mut receiver).await;
    world.at(60_000);
    let now = one(&mut other).await;
    assert_eq!(queue.commit(&lost).await.unwrap(), SettleResult::Lost);
    assert_eq!(queue.extend(&lost).await.unwrap(), SettleResult::Lost);
    for back in [RetryDelay::Immediate, RetryDelay::After(ms(1))] {
        assert_eq!(queue.rollback(&lost, back, "").await.unwrap(), RollbackResult::Lost);
    }
    world.at(119_999);
    assert!(due(&mut receiver).await.is_empty(), "the one that holds it was not put off by the other");
    assert_eq!(queue.commit(&now).await.unwrap(), SettleResult::Done);
    assert_eq!(queue.rollback(&now, RetryDelay::Immediate, "").await.unwrap(), RollbackResult::Lost);
    assert_eq!(queue.extend(&now).await.unwrap(), SettleResult::Lost);
    assert_eq!(world.look("ZCARD", "held", &[]).integer(), Some(0), "nothing is held for nobody");
}

pub(crate) async fn a_rolled_back_delivery_can_no_longer_be_settled(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    new(queue.send(&DelayMessage::after(ms(0), "m")).await.unwrap());
    let taken = one(&mut receiver).await;
    queue.rollback(&taken, RetryDelay::After(ms(10)), "").await.unwrap();
    assert_eq!(queue.commit(&taken).await.unwrap(), SettleResult::Lost);
    assert_eq!(queue.extend(&taken).await.unwrap(), SettleResult::Lost);
    assert_eq!(queue.rollback(&taken, RetryDelay::Immediate, "").await.unwrap(), RollbackResult::Lost);
    world.at(10);
    assert_eq!(one(&mut receiver).await.attempt, 2, "one retry, and not two");
}

/// Receives a due delivery of the source.
async fn received(source: &mut DelaySource) -> (Delivery, <DelaySource as Source>::Tag) {
    match source.receive(1).await.unwrap() {
        Received::Deliveries(some) => only(some),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_retry_by_a_source_keeps_its_counters_and_ranks_after_new_messages(world: &World) {
    let queue = world.queue().await;
    let mut source = DelaySource::new(&queue);
    let settler = source.settler();
    new(queue.send(&DelayMessage::priority(99, "old")).await.unwrap());
    let (delivery, tag) = received(&mut source).await;
    let mut retry = Retry::after(ms(5), time(7));
    retry.attempt = 3;
    settler.settle(&delivery, &tag, &Settlement::Retry(retry)).await.unwrap();
    world.at(5);
    new(queue.send(&DelayMessage::priority(17, "new")).await.unwrap());
    let (delivery, tag) = received(&mut source).await;
    assert_eq!(delivery.body, b"new");
    settler.settle(&delivery, &tag, &Settlement::GiveBack).await.unwrap();
    let (delivery, _) = received(&mut source).await;
    assert_eq!((&*delivery.body, delivery.attempt), (&b"new"[..], Some(1)), "what was given back is as it was");
    let (delivery, tag) = received(&mut source).await;
    let marks = (delivery.attempt, delivery.first_at, delivery.delivered);
    assert_eq!((&*delivery.body, marks), (&b"old"[..], (Some(3), Some(time(7)), Some(2))));
    // Retries of the source are not counted here: the first rollback counts as one.
    settler.settle(&delivery, &tag, &Settlement::GiveBack).await.unwrap();
    let taken = one(&mut queue.receiver()).await;
    assert_eq!((taken.attempt, taken.last_error.is_some()), (1, true));
}

pub(crate) async fn a_retry_may_be_delayed_by_any_time(world: &World) {
    let queue = world.queue().await;
    let mut source = DelaySource::new(&queue);
    new(queue.send(&DelayMessage::after(ms(0), "m")).await.unwrap());
    let (delivery, tag) = received(&mut source).await;
    let year = 366 * 86_400_000;
    let retry = Retry::after(ms(year), time(0));
    source.settler().settle(&delivery, &tag, &Settlement::Retry(retry)).await.unwrap();
    world.at(year - 1);
    assert!(due(&mut queue.receiver()).await.is_empty());
    world.at(year);
    assert_eq!(due(&mut queue.receiver()).await, ["m"]);
}

pub(crate) async fn a_source_that_lost_a_message_cannot_dead_letter_it(world: &World) {
    let queue = world.queue().await;
    let (mut source, mut receiver) = (DelaySource::new(&queue), queue.receiver());
    new(queue.send(&DelayMessage::after(ms(0), "m")).await.unwrap());
    let (delivery, tag) = received(&mut source).await;
    world.at(60_000);
    let now = one(&mut receiver).await;
    for how in [
        Settlement::DeadLetter(DeadLetter::because("as told", time(0))),
        Settlement::Ack,
        Settlement::GiveBack,
        Settlement::Retry(Retry::after(ms(1), time(0))),
    ] {
        let refused = source.settler().settle(&delivery, &tag, &how).await.unwrap_err();
        assert_eq!(refused.kind(), SourceErrorKind::Gone, "{}", how.name());
    }
    source.settler().keep_alive(&[&tag]).await.unwrap();
    assert_eq!(queue.counts().await.unwrap().dead, 0);
    assert_eq!(queue.commit(&now).await.unwrap(), SettleResult::Done);
}

pub(crate) async fn an_expired_delivery_can_be_settled_until_it_is_redelivered(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    new(queue.send(&DelayMessage::after(ms(0), "m")).await.unwrap());
    let taken = one(&mut receiver).await;
    world.at(70_000);
    assert_eq!(queue.counts().await.unwrap().ready, 1, "anybody may take it");
    assert_eq!(queue.commit(&taken).await.unwrap(), SettleResult::Done);
    assert!(due(&mut receiver).await.is_empty());
}

pub(crate) async fn an_extended_delivery_is_held_from_the_extension_on(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    new(queue.send(&DelayMessage::after(ms(0), "m")).await.unwrap());
    let taken = one(&mut receiver).await;
    world.at(59_000);
    assert_eq!(queue.extend(&taken).await.unwrap(), SettleResult::Done);
    world.at_micros(118_999_999);
    assert!(due(&mut receiver).await.is_empty());
    assert_eq!(queue.extend_by(&taken, ms(1)).await.unwrap(), SettleResult::Done);
    world.at(119_001);
    assert_eq!(due(&mut receiver).await, ["m"]);
    assert!(queue.extend_by(&taken, ms(0)).await.unwrap_err().to_string().contains("1 ms to 7 days"));
}

pub(crate) async fn a_rollback_delays_the_message_by_its_backoff(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    new(queue.send(&DelayMessage::priority(99, "ranked")).await.unwrap());
    new(queue.send(&DelayMessage::at(time(1), "timed")).await.unwrap());
    world.at(2);
    for taken in receiver.receive_now(10).await.unwrap() {
        assert_eq!(
            queue.rollback(&taken, RetryDelay::After(ms(500)), "no stock").await.unwrap(),
            RollbackResult::Again
        );
    }
    assert_eq!(queue.counts().await.unwrap().waiting, 2);
    world.at_micros(501_999);
    assert!(due(&mut receiver).await.is_empty(), "not before its backoff");
    world.at(502);
    let again = receiver.receive_now(10).await.unwrap();
    assert_eq!(again.len(), 2);
    for taken in again {
        assert_eq!((taken.attempt, taken.delivered, taken.last_error.as_deref()), (2, 2, Some("no stock")));
    }
}

pub(crate) async fn an_immediate_retry_ranks_by_its_remaining_retries(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    new(queue.send(&DelayMessage::at(time(1), "timed")).await.unwrap());
    new(queue.send(&DelayMessage::priority(99, "ranked")).await.unwrap());
    world.at(2);
    for left in (10..16).rev() {
        for taken in receiver.receive_now(10).await.unwrap() {
            queue.rollback(&taken, RetryDelay::Immediate, "").await.unwrap();
        }
        let score = |part| world.look("ZRANGE", part, &["0", "0", "WITHSCORES"]).items()[1].text();
        assert_eq!((score("due"), score("rank")), (left.to_string(), format!("-{left}")), "of 16 retries");
    }
    new(queue.send(&DelayMessage::due(time(0), "new")).await.unwrap());
    assert_eq!(due(&mut receiver).await, ["timed", "new", "ranked"], "due at once, before what has a time");
}

pub(crate) async fn a_message_is_dead_after_16_retries_and_17_deliveries(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    for (message, back) in [
        (DelayMessage::after(ms(0), "b").id("i").header("h", "v"), RetryDelay::Immediate),
        (DelayMessage::priority(20, "b").id("i").header("h", "v"), RetryDelay::After(ms(0))),
    ] {
        new(queue.send(&message).await.unwrap());
        for attempt in 1..=17 {
            let taken = one(&mut receiver).await;
            assert_eq!((taken.attempt, taken.delivered), (attempt, attempt));
            let came = queue.rollback(&taken, back, "no stock").await.unwrap();
            assert_eq!(came, if attempt < 17 { RollbackResult::Again } else { RollbackResult::Dead });
        }
        assert!(due(&mut receiver).await.is_empty());
        let (delivery, letter) = only(letters(&queue).await);
        assert_eq!((delivery.id.as_deref(), &*delivery.body), (Some("i"), &b"b"[..]));
        assert_eq!(delivery.headers.first("h"), Some(&b"v"[..]));
        assert_eq!((letter.attempts, letter.deaths, letter.first_at), (17, 1, time(0)));
        assert_eq!(letter.reason, "all retries are used up: no stock");
        assert_eq!(queue.cancel("i").await.unwrap(), Cancelled::Unknown, "a dead letter is nothing that waits");
        // The id is free.
        assert!(new(queue.send(&DelayMessage::after(ms(1), "").id("i")).await.unwrap()).is_new);
        queue.purge().await.unwrap();
    }
}

pub(crate) async fn expired_deliveries_are_counted_and_end_as_dead_letters(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    new(queue.send(&DelayMessage::priority(20, "crashes").id("c")).await.unwrap());
    new(queue.send(&DelayMessage::after(ms(0), "crashes").id("d")).await.unwrap());
    for attempt in 0..17 {
        world.at(attempt * 60_000);
        assert_eq!(due(&mut receiver).await, ["crashes", "crashes"], "delivery {}", attempt + 1);
    }
    world.at(17 * 60_000);
    assert!(due(&mut receiver).await.is_empty());
    for (_, letter) in letters(&queue).await {
        assert_eq!((letter.attempts, letter.first_at, letter.last_at), (17, time(0), time(17 * 60_000)));
        assert!(letter.reason.contains("nobody settled it in time"));
    }
    let counts = queue.counts().await.unwrap();
    assert_eq!((counts.dead, counts.in_flight, counts.ready), (2, 0, 0));
}

pub(crate) async fn resending_a_message_does_not_reset_its_retries(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    let message = DelayMessage::due(time(0), "poison").id("p");
    new(queue.send(&message).await.unwrap());
    for attempt in 1..=17 {
        let taken = one(&mut receiver).await;
        assert_eq!(taken.attempt, attempt);
        assert!(!queue.send(&message).await.unwrap().is_new, "while it is held");
        queue.rollback(&taken, RetryDelay::Immediate, "").await.unwrap();
        if attempt < 17 {
            assert!(!queue.send(&message).await.unwrap().is_new, "while it waits for its retry");
        }
    }
    assert_eq!(queue.counts().await.unwrap().dead, 1);
    assert!(due(&mut receiver).await.is_empty());
}

pub(crate) async fn a_batch_is_committed_by_one_call_with_a_result_per_delivery(world: &World) {
    let queue = world.queue_with(|builder| builder.slots(4)).await;
    let mut receiver = queue.receiver();
    for number in 0..40 {
        new(queue.send(&DelayMessage::after(ms(0), number.to_string())).await.unwrap());
    }
    let taken = receiver.receive_now(100).await.unwrap();
    assert_eq!(taken.len(), 40);
    assert!((0..4).all(|slot| taken.iter().filter(|taken| taken.slot == slot).count() == 10), "slots take turns");
    for taken in &taken[3..5] {
        queue.commit(taken).await.unwrap();
    }
    let closings = queue.commit_all(&taken).await.unwrap();
    let lost: Vec<_> = (0..40).filter(|at| closings[*at] == SettleResult::Lost).collect();
    assert_eq!(lost, [3, 4]);
    assert_eq!(queue.counts().await.unwrap().in_flight, 0);
}

pub(crate) async fn a_message_without_a_body_is_skipped(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    for body in ["gone", "there"] {
        new(queue.send(&DelayMessage::after(ms(0), body)).await.unwrap());
    }
    let first = world.look("ZRANGE", "due", &["0", "0"]).items()[0].text();
    world.look("HDEL", "msg", &[&first]);
    assert_eq!(due(&mut receiver).await, ["there"]);
    assert_eq!(world.look("ZCARD", "due", &[]).integer(), Some(0));
    assert_eq!(world.look("ZCARD", "held", &[]).integer(), Some(1));
    // A redelivered message leaves no state.
    new(queue.send(&DelayMessage::after(ms(0), "back")).await.unwrap());
    queue.rollback(&one(&mut receiver).await, RetryDelay::Immediate, "").await.unwrap();
    world.look("DEL", "msg", &[]);
    assert!(due(&mut receiver).await.is_empty());
    assert_eq!(world.look("EXISTS", "state", &[]).integer(), Some(0));
}

pub(crate) async fn an_undecodable_message_is_dead_lettered_with_its_bytes(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    new(queue.send(&DelayMessage::after(ms(0), "body").id("i")).await.unwrap());
    let member = world.look("ZRANGE", "due", &["0", "0"]).items()[0].text();
    world.look("HSET", "msg", &[&member, "0 2 ki\u{9}of another version"]);
    assert!(due(&mut receiver).await.is_empty());
    let (delivery, letter) = only(letters(&queue).await);
    assert_eq!(delivery.body, b"0 2 ki\tof another version");
    assert!(letter.reason.contains("this version"));
}

pub(crate) async fn damaged_data_of_a_message_holds_up_no_other_message(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    for body in ["words", "numbers", "no body", "whole"] {
        new(queue.send(&DelayMessage::after(ms(0), body)).await.unwrap());
    }
    let members = world.look("ZRANGE", "due", &["0", "-1"]);
    let [words, numbers, body] = [0, 1, 2].map(|at| members.items()[at].text());
    world.look("HSET", "state", &[&words, "written by another program"]);
    world.look("HSET", "state", &[&numbers, "99999999999999999999 99999999999 0 99999999999 99999999999999999999 x"]);
    world.look("HSET", "msg", &[&body, "written by another program"]);
    let taken = receiver.receive_now(10).await.unwrap();
    let bodies: Vec<_> = taken.iter().map(|taken| String::from_utf8_lossy(&taken.body).into_owned()).collect();
    assert_eq!(bodies, ["words", "numbers", "whole"]);
    let (letter, _) = only(letters(&queue).await);
    assert_eq!(letter.body, b"written by another program");
    for taken in &taken {
        assert_eq!(queue.commit(taken).await.unwrap(), SettleResult::Done);
    }
    // The body is damaged while the message is held, and the delivery expires without a retry left.
    let queue = world.queue_with(|builder| builder.visibility(MINUTE).max_retries(0)).await;
    new(queue.send(&DelayMessage::after(ms(0), "held")).await.unwrap());
    assert_eq!(due(&mut receiver).await, ["held"]);
    let held = world.look("ZRANGE", "held", &["0", "-1"]).items()[0].text();
    world.look("HSET", "msg", &[&held, "damaged"]);
    world.at(60_001);
    assert!(queue.receiver().receive_now(10).await.unwrap().is_empty());
    assert_eq!(letters(&queue).await.len(), 2);
}

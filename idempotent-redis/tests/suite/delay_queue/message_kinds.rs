//! The kinds of messages: due times and order.
use std::collections::BTreeSet;

use idempotent_core::Timestamp;
use idempotent_mq::{Cancelled, Delay, DelayErrorKind, Scheduled};
use idempotent_redis::{DelayMessage, RetryDelay, SettleResult};

use crate::delay_queue::world::{BEGIN, MINUTE, Place, TOPIC, World, bodies, due, ms, new, only, time};

pub(crate) async fn a_duplicate_within_the_interval_is_merged_and_keeps_the_first_time(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    let first = new(queue.send(&DelayMessage::merged("17", ms(5_000), "first")).await.unwrap());
    assert_eq!(first.at, time(5_000));
    world.at(3_000);
    let second = queue.send(&DelayMessage::merged("17", ms(5_000), "second")).await.unwrap();
    assert_eq!((second.is_new, &second.id, second.at), (false, &first.id, first.at), "merged");
    new(queue.send(&DelayMessage::merged("18", ms(5_000), "another")).await.unwrap());
    world.at_micros(4_999_999);
    assert!(due(&mut receiver).await.is_empty(), "not before its time");
    world.at(5_000);
    assert_eq!(due(&mut receiver).await, ["first"]);
    world.at(8_000);
    assert_eq!(due(&mut receiver).await, ["another"], "what was merged is not delivered");
}

pub(crate) async fn a_message_sent_while_the_first_is_in_delivery_is_not_merged(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    let merged = |body: &str| DelayMessage::merged("17", ms(5_000), body);
    new(queue.send(&merged("same")).await.unwrap());
    world.at(5_000);
    let first = only(receiver.receive_now(10).await.unwrap());
    // The same body while the first message is in delivery.
    let second = new(queue.send(&merged("same")).await.unwrap());
    assert_ne!(first.id, second.id);
    assert_eq!(queue.commit(&first).await.unwrap(), SettleResult::Done);
    // The entry of the second message is kept: a third one merges into it, and it is delivered.
    let third = queue.send(&merged("third")).await.unwrap();
    assert_eq!((third.is_new, &third.id), (false, &second.id));
    world.at(10_000);
    let again = only(receiver.receive_now(10).await.unwrap());
    assert_eq!((&again.id, bodies(std::slice::from_ref(&again))), (&second.id, vec!["same".to_owned()]));
    assert_eq!(queue.commit(&again).await.unwrap(), SettleResult::Done);
    assert_eq!(queue.counts().await.unwrap().ready, 0);
}

pub(crate) async fn higher_priorities_come_first_and_equal_ones_in_the_order_of_sending(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    for (priority, body) in [(17, "17"), (100, "100a"), (50, "50"), (100, "100b"), (u32::MAX, "max"), (100, "100c")] {
        new(queue.send(&DelayMessage::priority(priority, body)).await.unwrap());
    }
    assert_eq!(
        bodies(&receiver.receive_now(3).await.unwrap()),
        ["max", "100a", "100b"],
        "no more than there is room for"
    );
    new(queue.send(&DelayMessage::after(ms(0), "timed")).await.unwrap());
    assert_eq!(bodies(&receiver.receive_now(1).await.unwrap()), ["timed"]);
    assert_eq!(due(&mut receiver).await, ["100c", "50", "17"]);
}

pub(crate) async fn the_same_body_sent_twice_is_two_messages(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    for _ in 0..2 {
        new(queue.send(&DelayMessage::priority(20, "same")).await.unwrap());
        new(queue.send(&DelayMessage::at(time(1_000), "timed")).await.unwrap());
    }
    assert_eq!(due(&mut receiver).await, ["same", "same"]);
    world.at(1_001);
    assert_eq!(due(&mut receiver).await, ["timed", "timed"]);
}

pub(crate) async fn messages_of_equal_time_are_delivered_in_the_order_of_sending(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    for number in 0..30 {
        new(queue.send(&DelayMessage::at(time(1_000), number.to_string())).await.unwrap());
    }
    world.at(1_001);
    let expected: Vec<_> = (0..30).map(|number| number.to_string()).collect();
    assert_eq!(due(&mut receiver).await, expected);
}

pub(crate) async fn retries_rank_after_all_new_messages(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    for body in ["back at once", "back later"] {
        new(queue.send(&DelayMessage::priority(1_000, body)).await.unwrap());
    }
    let taken = receiver.receive_now(10).await.unwrap();
    queue.rollback(&taken[0], RetryDelay::Immediate, "").await.unwrap();
    queue.rollback(&taken[1], RetryDelay::After(ms(5)), "").await.unwrap();
    new(queue.send(&DelayMessage::priority(1_000, "left alone")).await.unwrap());
    assert_eq!(bodies(&receiver.receive_now(1).await.unwrap()), ["left alone"]);
    world.at(60_000);
    new(queue.send(&DelayMessage::priority(17, "new")).await.unwrap());
    assert_eq!(bodies(&receiver.receive_now(1).await.unwrap()), ["new"]);
    let mut back = due(&mut receiver).await;
    back.sort();
    assert_eq!(back, ["back at once", "back later", "left alone"]);
}

pub(crate) async fn a_fixed_time_is_due_only_once_it_has_passed(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    world.at(1_000);
    for late in [time(1_000), time(999), Timestamp(0)] {
        let refused = queue.send(&DelayMessage::at(late, "")).await.unwrap_err();
        assert_eq!(refused.kind(), DelayErrorKind::Refused);
        let text = refused.to_string();
        assert!(text.contains("fixed_time") && text.contains("in the future") && text.contains("DelayMessage::due"));
    }
    let sent = new(queue.send(&DelayMessage::at(time(2_000), "timed")).await.unwrap());
    assert_eq!(sent.at, time(2_000));
    world.at(2_000);
    assert!(due(&mut receiver).await.is_empty(), "not at its time");
    world.at_micros(2_000_001);
    assert_eq!(due(&mut receiver).await, ["timed"], "one tick after it");
}

pub(crate) async fn invalid_messages_are_refused_with_the_rule_and_the_remedy(world: &World) {
    let queue = world.queue().await;
    let long = "x".repeat(1_025);
    let year = Timestamp(9_000_000_000_000_001);
    for (message, words) in [
        (DelayMessage::priority(16, ""), ["priority is 16", "more than 16", "reserved for retries"]),
        (DelayMessage::priority(0, ""), ["priority is 0", "more than 16", "reserved for retries"]),
        (DelayMessage::merged("k", ms(0), ""), ["time_range", "more than 0 ms", "priority"]),
        (DelayMessage::merged("", ms(1), ""), ["merge key", "0 bytes", "1 to 1024"]),
        (DelayMessage::merged("k", ms(1), "").id("i"), ["merged message", "id", "leave out"]),
        (DelayMessage::merged("k", ms(u64::MAX), ""), ["time_range", "100 years", "check the unit"]),
        (DelayMessage::after(ms(u64::MAX), ""), ["the delay", "100 years", "check the unit"]),
        (DelayMessage::at(year, ""), ["fixed_time", "2255", "check the unit"]),
        (DelayMessage::due(year, "").id("i"), ["the time", "2255", "check the unit"]),
        (DelayMessage::priority(17, "").id(""), ["the id", "0 bytes", "1 to 1024"]),
        (DelayMessage::priority(17, "").id(long.as_str()), ["the id", "1025 bytes", "hash"]),
        (DelayMessage::priority(17, "").slot_basis(""), ["slot basis", "0 bytes", "1 to 1024"]),
    ] {
        let refused = queue.send(&message).await.unwrap_err();
        assert_eq!(refused.kind(), DelayErrorKind::Refused);
        let text = refused.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} in: {text}");
    }
    assert_eq!(queue.counts().await.unwrap(), idempotent_redis::DelayCounts::default(), "nothing is kept");
    new(queue.send(&DelayMessage::priority(17, "")).await.unwrap());
}

pub(crate) async fn a_delay_starts_when_the_server_accepts_the_message(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    world.at(100);
    let later = new(queue.send(&DelayMessage::after(ms(50), "later")).await.unwrap());
    assert_eq!(later.at, time(150));
    new(queue.send(&DelayMessage::after(ms(0), "at once")).await.unwrap());
    assert_eq!(due(&mut receiver).await, ["at once"]);
    world.at_micros(149_999);
    assert!(due(&mut receiver).await.is_empty());
    world.at(150);
    assert_eq!(due(&mut receiver).await, ["later"]);
}

pub(crate) async fn a_task_is_scheduled_once_per_key_until_it_is_settled_or_cancelled(world: &World) {
    let queue = world.queue_with(|builder| builder.slots(4)).await;
    let (delay, mut receiver): (&dyn Delay, _) = (&queue, queue.receiver());
    let at = Timestamp(BEGIN + 30_000_001);
    assert_eq!(delay.schedule("order-17", at, b"cancel").await.unwrap(), Scheduled::New);
    let again = delay.schedule("order-17", time(99_000), b"other").await.unwrap();
    assert_eq!(again, Scheduled::Already { at }, "the first one stands, to the µs");
    world.at_micros(30_000_000);
    assert!(due(&mut receiver).await.is_empty());
    world.at_micros(30_000_001);
    let taken = only(receiver.receive_now(10).await.unwrap());
    assert_eq!((&*taken.id, &*taken.body), ("order-17", &b"cancel"[..]));
    assert_eq!(delay.schedule("order-17", at, b"").await.unwrap(), Scheduled::Already { at }, "it is with a consumer");
    assert_eq!(queue.commit(&taken).await.unwrap(), SettleResult::Done);
    // The task is settled. A time in the past is due at once.
    assert_eq!(delay.schedule("order-17", time(0), b"late").await.unwrap(), Scheduled::New);
    assert_eq!(due(&mut receiver).await, ["late"]);
    assert_eq!(delay.schedule("order-18", time(40_000), b"").await.unwrap(), Scheduled::New);
    assert_eq!(delay.cancel("order-18").await.unwrap(), Cancelled::Done);
    assert_eq!(delay.cancel("order-18").await.unwrap(), Cancelled::Unknown);
    assert_eq!(delay.cancel("order-17").await.unwrap(), Cancelled::Delivering);
    assert_eq!(delay.cancel("order-17").await.unwrap(), Cancelled::Unknown, "it will not come again");
    world.at(500_000);
    assert!(due(&mut receiver).await.is_empty());
}

pub(crate) async fn scheduling_returns_the_time_of_any_message_with_the_key(world: &World) {
    let queue = world.queue().await;
    let sent = new(queue.send(&DelayMessage::after(ms(700), "").id("a")).await.unwrap());
    assert_eq!(queue.send(&DelayMessage::after(ms(900), "").id("a")).await.unwrap().at, sent.at);
    assert_eq!(sent.at, time(700));
}

pub(crate) async fn a_message_is_cancelled_by_its_server_assigned_id(world: &World) {
    let queue = world.queue_with(|builder| builder.slots(4)).await;
    let mut receiver = queue.receiver();
    let mut ids = Vec::new();
    for message in [
        DelayMessage::after(ms(10), "timed"),
        DelayMessage::priority(99, "ranked"),
        DelayMessage::merged("k", ms(10), "merged"),
    ] {
        ids.push(new(queue.send(&message).await.unwrap()).id);
    }
    for id in &ids {
        assert_eq!(queue.cancel(id).await.unwrap(), Cancelled::Done);
        assert_eq!(queue.cancel(id).await.unwrap(), Cancelled::Unknown);
    }
    for unknown in ["9-p0000000000000", "0-p0000000000000", "-", "x-y"] {
        assert_eq!(queue.cancel(unknown).await.unwrap(), Cancelled::Unknown);
    }
    world.at(20);
    assert!(due(&mut receiver).await.is_empty());
    // The key is free again.
    new(queue.send(&DelayMessage::merged("k", ms(10), "")).await.unwrap());
    new(queue.send(&DelayMessage::after(ms(1), "").id("i").slot_basis("b")).await.unwrap());
    assert_eq!(queue.cancel_in("b", "i").await.unwrap(), Cancelled::Done);
}

pub(crate) async fn a_backlog_of_delayed_messages_is_divided_over_the_slots(world: &World) {
    const MESSAGES: usize = 400;
    let queue = world.queue_with(|builder| builder.slots(4)).await;
    let mut receiver = queue.receiver();
    let message = |number: usize| DelayMessage::after(MINUTE, number.to_string()).id(format!("order-{number}"));
    let sent = queue.send_all(&(0..MESSAGES).map(message).collect::<Vec<_>>()).await;
    assert!(sent.iter().all(|sent| sent.as_ref().unwrap().is_new));
    let keys = [0, 1, 2, 3].map(|slot| format!("idempotent:delay:{{{TOPIC}:{slot}}}:due"));
    let waiting = keys.each_ref().map(|key| world.place.command(key, &["ZCARD", key]).integer().unwrap());
    assert_eq!(waiting.iter().sum::<i64>(), 400);
    assert!(waiting.iter().all(|waiting| (80..=120).contains(waiting)), "{waiting:?}");
    if let Place::Cluster(cluster) = &*world.place {
        let nodes: BTreeSet<_> = keys.iter().map(|key| cluster.owner_of(cluster.slot_of(key))).collect();
        assert!(nodes.len() > 1, "the backlog is on several nodes");
    }
    assert!(due(&mut receiver).await.is_empty(), "not before its time");
    world.at(60_000);
    let mut taken = BTreeSet::new();
    loop {
        let some = due(&mut receiver).await;
        if some.is_empty() {
            break;
        }
        assert!(some.into_iter().all(|body| taken.insert(body)), "each once");
    }
    assert_eq!(taken.len(), MESSAGES);
}

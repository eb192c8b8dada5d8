//! Dead letters, counts, and purging of a topic.
use idempotent_harness::servers::RedisServer;
use idempotent_mq::{Cancelled, DeadLetters, DelayErrorKind, Redrive};
use idempotent_redis::{DelayDeadLetters, DelayMessage, DelayQueue, DelayQueueBuilder, RetryDelay, SettleResult};

use crate::delay_queue::world::{World, due, letters, ms, new, only, time};

fn no_retries(builder: DelayQueueBuilder) -> DelayQueueBuilder {
    builder.max_retries(0)
}

async fn die(queue: &DelayQueue, message: &DelayMessage) {
    new(queue.send(message).await.unwrap());
    let taken = only(queue.receiver().receive_now(10).await.unwrap());
    queue.rollback(&taken, RetryDelay::Immediate, "no stock").await.unwrap();
}

pub(crate) async fn dead_letters_are_listed_oldest_first_and_redriven_as_first_attempts(world: &World) {
    let queue = world.queue_with(no_retries).await;
    for (at, message) in [
        DelayMessage::after(ms(0), "first").id("a").header("h", "v"),
        DelayMessage::priority(500, "second"),
        DelayMessage::after(ms(0), "third"),
    ]
    .iter()
    .enumerate()
    {
        // The second and the third message die at the same time.
        world.at([0, 5, 5][at]);
        die(&queue, message).await;
    }
    let bodies: Vec<_> = letters(&queue).await.into_iter().map(|(delivery, _)| delivery.body).collect();
    assert_eq!(bodies.len(), 3);
    assert_eq!(bodies[0], b"first");
    world.at(10);
    let mut some = DelayDeadLetters::new(&queue);
    assert!(some.put_back().await.unwrap_err().to_string().contains("next"), "nothing was brought");
    assert_eq!(some.count().await.unwrap(), 3);
    some.next().await.unwrap().unwrap();
    assert!(some.put_back().await.unwrap());
    assert!(some.put_back().await.is_err(), "it was put back already");
    let mut receiver = queue.receiver();
    let back = only(receiver.receive_now(10).await.unwrap());
    assert_eq!((&*back.id, &*back.body, back.headers.first("h")), ("a", &b"first"[..], Some(&b"v"[..])));
    assert_eq!((back.attempt, back.delivered, back.deaths, back.first_at), (1, 2, 1, time(0)));
    assert_eq!(back.last_error, None);
    assert_eq!(queue.commit(&back).await.unwrap(), SettleResult::Done);
    // A letter that was redriven elsewhere is reported and skipped.
    let mut one = DelayDeadLetters::new(&queue);
    one.next().await.unwrap().unwrap();
    let redriven = Redrive::new().run(&mut DelayDeadLetters::new(&queue)).await;
    assert_eq!((redriven.put_back, redriven.failed.is_none()), (2, true));
    assert!(!one.put_back().await.unwrap());
    new(queue.send(&DelayMessage::priority(499, "new")).await.unwrap());
    assert_eq!(due(&mut receiver).await, ["third", "second", "new"], "by its own priority");
    assert!(letters(&queue).await.is_empty());
}

pub(crate) async fn a_message_that_dies_after_the_count_is_not_listed(world: &World) {
    let queue = world.queue_with(|builder| no_retries(builder).slots(2)).await;
    die(&queue, &DelayMessage::after(ms(0), "a").id("a").slot_basis("0")).await;
    let mut letters = DelayDeadLetters::new(&queue);
    assert_eq!(letters.count().await.unwrap(), 1);
    world.at(5);
    for number in 0..8 {
        die(&queue, &DelayMessage::after(ms(0), "later").slot_basis(number.to_string())).await;
    }
    assert_eq!(letters.next().await.unwrap().unwrap().delivery.body, b"a");
    assert!(letters.next().await.unwrap().is_none());
    assert_eq!(DelayDeadLetters::new(&queue).count().await.unwrap(), 9);
}

pub(crate) async fn dead_letters_are_listed_in_order_of_death_and_cannot_be_cancelled(world: &World) {
    let queue = world.queue_with(no_retries).await;
    let older = new(queue.send(&DelayMessage::after(ms(100), "older")).await.unwrap());
    let younger = new(queue.send(&DelayMessage::after(ms(50), "younger")).await.unwrap());
    for at in [50, 100] {
        world.at(at);
        let taken = only(queue.receiver().receive_now(10).await.unwrap());
        queue.rollback(&taken, RetryDelay::Immediate, "").await.unwrap();
    }
    for id in [&older.id, &younger.id] {
        assert_eq!(queue.cancel(id).await.unwrap(), Cancelled::Unknown);
    }
    let bodies: Vec<_> = letters(&queue).await.into_iter().map(|(delivery, _)| delivery.body).collect();
    assert_eq!(bodies, [&b"younger"[..], b"older"]);
}

pub(crate) async fn a_message_that_dies_again_has_two_deaths(world: &World) {
    let queue = world.queue_with(no_retries).await;
    die(&queue, &DelayMessage::priority(20, "b")).await;
    let _ = Redrive::new().run(&mut DelayDeadLetters::new(&queue)).await;
    let again = only(queue.receiver().receive_now(1).await.unwrap());
    queue.rollback(&again, RetryDelay::After(ms(1)), "still no stock").await.unwrap();
    let (delivery, letter) = only(letters(&queue).await);
    assert_eq!((letter.deaths, delivery.deaths), (2, 2));
    assert_eq!(letter.reason, "all retries are used up: still no stock");
}

pub(crate) async fn a_dead_letter_is_removed_with_all_its_data_and_only_in_the_death_that_was_read(world: &World) {
    let queue = world.queue_with(no_retries).await;
    for (at, body) in [(0, "first"), (5, "second")] {
        world.at(at);
        die(&queue, &DelayMessage::after(ms(0), body)).await;
    }
    let [mut early, mut late] = [DelayDeadLetters::new(&queue), DelayDeadLetters::new(&queue)];
    assert!(early.discard().await.is_err(), "nothing was read");
    for letters in [&mut early, &mut late] {
        assert_eq!(letters.next().await.unwrap().unwrap().delivery.body, b"first");
    }
    // The message is put back, and dies again.
    let one = Redrive::new().limit(1).run(&mut DelayDeadLetters::new(&queue)).await;
    assert_eq!(one.put_back, 1);
    world.at(10);
    let again = only(queue.receiver().receive_now(1).await.unwrap());
    assert!(!late.discard().await.unwrap(), "the message is no dead letter");
    queue.rollback(&again, RetryDelay::Immediate, "").await.unwrap();
    assert!(!early.discard().await.unwrap(), "the letter of the earlier death is gone");
    assert!(early.discard().await.is_err(), "the answer was given already");
    assert_eq!(queue.counts().await.unwrap().dead, 2);
    let discarded = Redrive::new().discarding().run(&mut DelayDeadLetters::new(&queue)).await;
    assert_eq!((discarded.discarded, discarded.gone), (2, 0));
    for part in ["dead", "letter", "state", "msg"] {
        assert_eq!(world.look("EXISTS", part, &[]).integer(), Some(0), "{part} is left");
    }
}

pub(crate) async fn a_dead_letter_frees_its_id_and_not_the_id_of_another_message(world: &World) {
    let queue = world.queue_with(no_retries).await;
    let merged = |body: &str| DelayMessage::merged("k", ms(1), body);
    new(queue.send(&merged("first")).await.unwrap());
    world.at(1);
    let first = only(queue.receiver().receive_now(1).await.unwrap());
    let second = new(queue.send(&merged("second")).await.unwrap());
    queue.rollback(&first, RetryDelay::Immediate, "").await.unwrap();
    assert_eq!(queue.send(&merged("third")).await.unwrap().id, second.id, "the second's key is still its own");
}

pub(crate) async fn dead_letters_are_removed_oldest_first_up_to_the_limit(world: &World) {
    let queue = world.queue_with(no_retries).await;
    for at in 0..5 {
        world.at(at);
        die(&queue, &DelayMessage::after(ms(0), at.to_string())).await;
    }
    new(queue.send(&DelayMessage::after(ms(5), "waits").id("w")).await.unwrap());
    assert_eq!(queue.purge_dead(2).await.unwrap(), 2);
    let left: Vec<_> = letters(&queue).await.into_iter().map(|(delivery, _)| delivery.body).collect();
    assert_eq!(left, [b"2", b"3", b"4"]);
    assert_eq!(queue.purge_dead(u64::MAX).await.unwrap(), 3);
    for part in ["dead", "letter", "state"] {
        assert_eq!(world.look("EXISTS", part, &[]).integer(), Some(0), "{part} is left behind");
    }
    assert_eq!(queue.counts().await.unwrap().waiting, 1);
}

pub(crate) async fn counts_report_ready_waiting_in_flight_and_dead_messages_and_the_oldest_age(world: &World) {
    let queue = world.queue_with(|builder| builder.max_retries(0).visibility(ms(1_000)).slots(4)).await;
    let mut receiver = queue.receiver();
    assert_eq!(queue.counts().await.unwrap().oldest, None);
    die(&queue, &DelayMessage::after(ms(0), "dead")).await;
    new(queue.send(&DelayMessage::after(ms(0), "held")).await.unwrap());
    assert_eq!(due(&mut receiver).await, ["held"]);
    world.at(100);
    new(queue.send(&DelayMessage::priority(20, "a")).await.unwrap());
    world.at(150);
    new(queue.send(&DelayMessage::priority(90, "b")).await.unwrap());
    new(queue.send(&DelayMessage::after(ms(50), "c")).await.unwrap());
    new(queue.send(&DelayMessage::after(ms(900), "d")).await.unwrap());
    world.at(300);
    let counts = queue.counts().await.unwrap();
    assert_eq!((counts.ready, counts.waiting, counts.in_flight, counts.dead), (3, 1, 1, 1));
    assert_eq!(counts.oldest, Some(ms(200)), "the one of the smaller priority waits for longest");
    world.at(1_400);
    let counts = queue.counts().await.unwrap();
    assert_eq!((counts.ready, counts.waiting, counts.in_flight, counts.oldest), (5, 0, 0, Some(ms(1_300))));
}

pub(crate) async fn counts_report_the_oldest_of_several_priorities_and_times(world: &World) {
    let queue = world.queue().await;
    for (at, priority) in [(20, 20), (50, 30), (70, 90)] {
        world.at(at);
        new(queue.send(&DelayMessage::priority(priority, "")).await.unwrap());
    }
    world.at(100);
    assert_eq!(queue.counts().await.unwrap().oldest, Some(ms(80)));
    new(queue.send(&DelayMessage::due(time(10), "")).await.unwrap());
    new(queue.send(&DelayMessage::due(time(15), "")).await.unwrap());
    // The age is counted from the due time, to the µs.
    assert_eq!(queue.counts().await.unwrap().oldest.unwrap().as_millis(), 90);
}

pub(crate) async fn purging_a_topic_removes_everything_but_its_number_sequence(world: &World) {
    let queue = world.queue_with(no_retries).await;
    let mut receiver = queue.receiver();
    die(&queue, &DelayMessage::after(ms(0), "dead")).await;
    let last = new(queue.send(&DelayMessage::after(ms(0), "held")).await.unwrap());
    let held = only(receiver.receive_now(1).await.unwrap());
    new(queue.send(&DelayMessage::priority(20, "ready").id("r")).await.unwrap());
    let beside = queue.for_topic("bills").unwrap();
    assert_eq!((beside.topic(), queue.topic()), ("bills", "orders"));
    assert_eq!(queue.purge().await.unwrap(), 3);
    assert_eq!(queue.counts().await.unwrap(), idempotent_redis::DelayCounts::default());
    assert_eq!(queue.commit(&held).await.unwrap(), SettleResult::Lost);
    let next = new(queue.send(&DelayMessage::after(ms(0), "next")).await.unwrap());
    assert!(next.id > last.id, "no id is given twice");
}

pub(crate) async fn numbers_are_unique_with_a_stopped_or_backward_clock(world: &World) {
    let queue = world.queue().await;
    world.at(10);
    let mut ids = Vec::new();
    for at in [10, 10, 5, 5, 20] {
        world.at(at);
        ids.push(new(queue.send(&DelayMessage::after(ms(0), "")).await.unwrap()).id);
    }
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
}

#[tokio::test]
async fn a_message_of_the_size_limit_is_sent_buried_and_redriven_and_one_byte_more_is_refused() {
    const LIMIT: usize = 1 << 20;
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "proto-max-bulk-len", &LIMIT.to_string()]);
    let queue = DelayQueue::builder(server.url(), "orders").slots(1).max_retries(0).connect().await.unwrap();
    // A version, no business key and no headers.
    const BESIDE: usize = 3;
    for length in [LIMIT - BESIDE - 1, LIMIT - BESIDE] {
        die(&queue, &DelayMessage::after(ms(0), vec![b'x'; length]).id("m")).await;
        let redriven = Redrive::new().run(&mut DelayDeadLetters::new(&queue)).await;
        assert!(redriven.failed.is_none() && redriven.put_back == 1, "{redriven:?}");
        let again = only(queue.receiver().receive_now(10).await.unwrap());
        assert_eq!(again.body.len(), length);
        assert_eq!(queue.commit(&again).await.unwrap(), SettleResult::Done);
    }
    let large = DelayMessage::after(ms(0), vec![b'x'; LIMIT - BESIDE + 1]).id("m");
    let error = queue.send(&large).await.unwrap_err();
    assert!(error.kind() == DelayErrorKind::Refused && error.to_string().contains("`proto-max-bulk-len`"), "{error}");
    new(queue.send(&DelayMessage::after(ms(0), "next").id("n")).await.unwrap());
}

//! FIFO queues: the order of a group, and the ids of copies.
use std::sync::{Arc, Mutex};

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, KeyFrom, Messages, OutboundMessage, Publish, Settlement, Source};
use idempotent_sqs::aws_sdk_sqs::types::MessageSystemAttributeName::{MessageDeduplicationId, MessageGroupId};
use idempotent_sqs::{SqsPublisher, message_group};

use crate::world::{LIMIT, World, ms, one, receive, retry, settle, until};

#[tokio::test]
async fn a_group_waits_for_its_held_message_and_other_groups_do_not() {
    let world = World::fifo().await;
    let mut source = world.builder().visibility_timeout(LIMIT * 2).connect().await.unwrap();
    let settler = source.settler();
    for (group, body) in [("a", "a1"), ("a", "a2"), ("b", "b1")] {
        world.send_to(group, body).await;
    }
    let a1 = one(&mut source).await;
    assert_eq!((&*a1.0.body, source.capabilities().keeps_order), (&b"a1"[..], true));
    let b1 = one(&mut source).await;
    assert_eq!(b1.0.body, b"b1");
    assert!(a1.0.position.partition.is_some() && a1.0.position.partition != b1.0.position.partition);
    settle(&settler, &a1, retry(ms(300))).await;
    let again = one(&mut source).await;
    assert_eq!((&*again.0.body, again.0.attempt), (&b"a1"[..], Some(2)), "the retried message is before its successor");
    settle(&settler, &again, Settlement::Ack).await;
    let a2 = one(&mut source).await;
    assert_eq!(a2.0.body, b"a2");
}

/// No handler fails: moto delivers a group in another order after several of its messages were deferred.
#[tokio::test]
async fn the_messages_of_a_group_run_one_at_a_time_in_order() {
    let world = World::fifo().await;
    for number in 0..4 {
        for group in ["a", "b"] {
            world.send_to(group, &format!("{group}{number}")).await;
        }
    }
    let log = Arc::new(Mutex::new(Vec::<String>::new()));
    let said = log.clone();
    let handling = Messages::raw().ordered_by(message_group()).keyed(KeyFrom::message_id()).run(move |message| {
        let (said, body) = (said.clone(), String::from_utf8(message.delivery.body.clone()).unwrap());
        async move {
            said.lock().unwrap().push(format!("{body} begins"));
            tokio::task::yield_now().await;
            said.lock().unwrap().push(format!("{body} ends"));
            Ok::<_, String>(())
        }
    });
    let running = world.run(world.source().await, handling);
    until("all messages are acknowledged", async || world.open().await == 0).await;
    running.ended().await.unwrap();
    let log = log.lock().unwrap();
    for group in ["a", "b"] {
        let of: Vec<_> = log.iter().filter(|said| said.starts_with(group)).map(|said| &said[1..]).collect();
        assert_eq!(of.join(", "), "0 begins, 0 ends, 1 begins, 1 ends, 2 begins, 2 ends, 3 begins, 3 ends");
    }
}

#[tokio::test]
async fn each_dead_letter_has_a_group_of_its_own_and_returns_to_its_former_group() {
    let world = World::fifo().await;
    let mut source = world.source().await;
    let settler = source.settler();
    let messages = ["m-1", "m-2"].map(|id| OutboundMessage::new(&*world.name, id, "body").aggregate("customer-7"));
    let sent = SqsPublisher::new(world.client.clone()).publish(&messages).await;
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
    let mut held = receive(&mut source, 2).await;
    while held.len() < 2 {
        held.extend(receive(&mut source, 2).await);
    }
    for held in &held {
        settle(&settler, held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await;
    }
    let mut letters = world.letters();
    let redriven = idempotent_mq::Redrive::new().run(&mut letters).await;
    assert_eq!((redriven.put_back, redriven.unread, redriven.failed.is_none()), (2, 0, true), "{redriven:?}");
    let messages = world.peek(&world.name).await;
    assert_eq!(messages.len(), 2);
    for message in messages {
        let attributes = message.attributes().unwrap();
        assert_eq!(attributes[&MessageGroupId], "customer-7");
        // SQS drops a message whose id it has received within 5 min. moto forgets the ids of deleted messages.
        assert!(!attributes[&MessageDeduplicationId].starts_with("m-"), "{attributes:?}");
    }
}

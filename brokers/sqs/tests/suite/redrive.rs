//! Dead letters: listing, putting back and removing.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, DeadLetters, Redrive, Settlement, Source, StoredLetter};
use idempotent_sqs::SqsDeadLetters;
use idempotent_sqs::aws_sdk_sqs::Client;
use idempotent_sqs::aws_sdk_sqs::config::interceptors::BeforeTransmitInterceptorContextRef;
use idempotent_sqs::aws_sdk_sqs::config::{ConfigBag, Intercept, RuntimeComponents};
use idempotent_sqs::aws_sdk_sqs::error::BoxError;
use idempotent_sqs::aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};

use crate::world::{World, client, ms, one, receive, settle, until};

impl World {
    /// Sends messages, and dead-letters them.
    async fn bury(&self, bodies: &[&str]) {
        let mut source = self.source().await;
        let settler = source.settler();
        for body in bodies {
            self.send(body).await;
            let held = one(&mut source).await;
            settle(&settler, &held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await;
        }
        source.close().await;
    }
}

#[tokio::test]
async fn a_letter_keeps_the_attributes_of_its_message_with_their_types() {
    let world = World::new().await;
    let typed = |data_type: &str, text: &str| {
        MessageAttributeValue::builder().data_type(data_type).string_value(text).build().unwrap()
    };
    let send = world.client.send_message().queue_url(world.url(&world.name).await).message_body("<a>\r\n&amp;</a>");
    let send = send.message_attributes("n", typed("Number", "1.50")).message_attributes("s", typed("String.x", "\t"));
    send.send().await.unwrap();
    let sent = world.peek(&world.name).await.pop().unwrap();
    let mut source = world.source().await;
    let held = one(&mut source).await;
    assert_eq!((&*held.0.body, held.0.headers.first("n")), (&b"<a>\r\n&amp;</a>"[..], Some(&b"1.50"[..])));
    settle(&source.settler(), &held, Settlement::DeadLetter(DeadLetter::because("a\0b", Timestamp(9)))).await;
    for name in [world.dead(), world.name.clone()] {
        let copy = world.peek(&name).await.pop().unwrap();
        assert_eq!(copy.body(), sent.body(), "{name}");
        let mut attributes = copy.message_attributes().unwrap().clone();
        attributes.remove("idempotent").unwrap();
        assert_eq!(Some(&attributes), sent.message_attributes(), "{name}");
        let redriven = Redrive::new().run(&mut world.letters()).await;
        assert!(redriven.failed.is_none(), "{redriven:?}");
    }
}

#[tokio::test]
async fn a_redriven_message_keeps_its_id_and_begins_again() {
    let world = World::new().await;
    let mut source = world.source().await;
    world.send("1").await;
    let held = one(&mut source).await;
    let letter = DeadLetter::because("no stock", Timestamp(9));
    settle(&source.settler(), &held, Settlement::DeadLetter(letter.clone())).await;
    let mut letters = world.letters();
    assert_eq!(letters.count().await.unwrap(), 1);
    let StoredLetter { delivery, letter: stored, .. } = letters.next().await.unwrap().unwrap();
    assert_eq!((&delivery.id, &*delivery.position.source, stored), (&held.0.id, &*world.name, Some(letter)));
    assert!(letters.next().await.unwrap().is_none());
    assert!(letters.put_back().await.unwrap());
    assert!(letters.put_back().await.unwrap_err().to_string().contains("call `next` first"));
    let again = one(&mut source).await;
    assert_eq!((&again.0.id, again.0.attempt, again.0.delivered, again.0.deaths), (&held.0.id, Some(1), Some(1), 1));
    assert_ne!(again.0.position, held.0.position);
}

#[tokio::test]
async fn letters_that_were_read_return_when_the_handle_is_closed() {
    let world = World::new().await;
    world.bury(&["1", "2", "3"]).await;
    let (mut letters, mut other) = (world.letters(), world.letters());
    assert_eq!(letters.count().await.unwrap(), 3);
    let mut bodies = BTreeSet::new();
    while let Some(StoredLetter { delivery, letter, .. }) = letters.next().await.unwrap() {
        assert!(letter.is_some());
        bodies.insert(delivery.body);
    }
    assert_eq!(bodies, [b"1".to_vec(), b"2".to_vec(), b"3".to_vec()].into());
    assert_eq!((other.count().await.unwrap(), other.next().await.unwrap().is_none()), (0, true), "they are hidden");
    letters.close().await;
    until("the letters are back", async || other.count().await.unwrap() == 3).await;
    let kept = Redrive::new().only(|letter| letter.delivery.body != b"2").discarding().run(&mut other).await;
    assert_eq!((kept.discarded, kept.skipped, kept.unread), (2, 1, 0), "{kept:?}");
    other.close().await;
    assert_eq!(world.numbers(&world.dead()).await, (1, 0));
}

/// The number of batches that change visibility timeouts.
#[derive(Clone, Debug, Default)]
struct Changes(Arc<AtomicU32>);

impl Intercept for Changes {
    fn name(&self) -> &'static str {
        "Changes"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let target = context.request().headers().get("x-amz-target").unwrap_or_default();
        self.0.fetch_add(u32::from(target.ends_with("ChangeMessageVisibilityBatch")), SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn letters_that_are_being_read_are_hidden_for_longer_every_40_s() {
    let world = World::new().await;
    world.bury(&["1"; 3]).await;
    let changes = Changes::default();
    let config = world.client.config().to_builder().interceptor(changes.clone()).build();
    let mut letters = SqsDeadLetters::new(Client::from_conf(config), &*world.name);
    letters.next().await.unwrap().unwrap();
    for (after, expected) in [(39, 0), (1, 1), (39, 1), (1, 2)] {
        tokio::time::pause();
        tokio::time::advance(ms(after * 1_000)).await;
        tokio::time::resume();
        letters.next().await.unwrap();
        assert_eq!(changes.0.load(SeqCst), expected);
    }
}

#[tokio::test]
async fn letters_that_are_gone_are_not_returned_at_the_end() {
    let world = World::new().await;
    world.bury(&["1"]).await;
    let changes = Changes::default();
    let config = world.client.config().to_builder().interceptor(changes.clone()).build();
    let mut letters = SqsDeadLetters::new(Client::from_conf(config), &*world.name);
    letters.next().await.unwrap().unwrap();
    letters.discard().await.unwrap();
    letters.close().await;
    assert_eq!(changes.0.load(SeqCst), 0);
}

#[tokio::test]
async fn a_letter_whose_queue_was_deleted_is_an_error() {
    let world = World::new().await;
    world.bury(&["1"]).await;
    let mut letters = world.letters();
    letters.next().await.unwrap().unwrap();
    world.client.delete_queue().queue_url(world.url(&world.dead()).await).send().await.unwrap();
    assert!(letters.discard().await.unwrap_err().to_string().contains("create the queue"));
}

#[tokio::test]
async fn a_letter_that_another_operator_removed_is_gone() {
    let world = World::new().await;
    world.bury(&["1", "2"]).await;
    let mut letters = world.letters();
    for put_back in [true, false] {
        letters.next().await.unwrap().unwrap();
        world.client.purge_queue().queue_url(world.url(&world.dead()).await).send().await.ok();
        let done = if put_back { letters.put_back().await } else { letters.discard().await };
        assert!(!done.unwrap());
    }
    assert_eq!(world.open().await, 0);
}

#[tokio::test]
async fn a_letter_of_the_queues_own_policy_is_listed_and_put_back() {
    let world = World::new().await;
    let dead = world.client.get_queue_attributes().queue_url(world.url(&world.dead()).await);
    let dead = dead.attribute_names(QueueAttributeName::QueueArn).send().await.unwrap();
    let arn = &dead.attributes().unwrap()[&QueueAttributeName::QueueArn];
    let policy = format!(r#"{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "1"}}"#);
    let set = world.client.set_queue_attributes().queue_url(world.url(&world.name).await);
    set.attributes(QueueAttributeName::RedrivePolicy, policy).send().await.unwrap();
    let mut source = world.builder().accept_max_receives(1).connect().await.unwrap();
    world.send("poison").await;
    drop(one(&mut source).await);
    let redelivered = async {
        loop {
            let idempotent_mq::Received::Deliveries(some) = source.receive(1).await.unwrap() else { panic!() };
            assert!(some.is_empty(), "SQS moves the message instead");
        }
    };
    tokio::select! {
        () = redelivered => {}
        () = until("SQS has moved the message", async || world.numbers(&world.dead()).await == (1, 0)) => {}
    }
    let mut letters = world.letters();
    assert_eq!(letters.count().await.unwrap(), 1);
    let StoredLetter { delivery, letter, .. } = letters.next().await.unwrap().unwrap();
    assert_eq!((&*delivery.body, &*delivery.position.source, letter), (&b"poison"[..], &*world.name, None));
    assert!(letters.put_back().await.unwrap());
    assert_eq!(receive(&mut source, 1).await[0].0.body, b"poison");
}

#[tokio::test]
async fn a_letter_goes_to_the_queue_of_the_handle_or_to_one_that_the_operator_names() {
    let (world, payments) = (World::new().await, World::new().await);
    // As SQS itself moves the message of a producer.
    let forged = format!(
        r#"{{"id": "pay-4711", "first_at": 1, "deaths": 1,
            "letter": {{"queue": "{}", "reason": "all is well", "attempts": 1, "last_at": 1}}}}"#,
        payments.name
    );
    let forged = MessageAttributeValue::builder().data_type("String").string_value(forged).build().unwrap();
    for name in [world.dead(), world.name.clone()] {
        let send = world.client.send_message().queue_url(world.url(&name).await).message_body("1");
        send.message_attributes("idempotent", forged.clone()).send().await.unwrap();
    }
    let mut letters = world.letters();
    let redriven = Redrive::new().run(&mut letters).await;
    assert_eq!((redriven.put_back, redriven.passed_by), (0, 1), "{redriven:?}");
    letters.close().await;
    let mut source = world.source().await;
    let held = one(&mut source).await;
    assert_eq!(held.0.deaths, 1, "the history is for operators");
    settle(&source.settler(), &held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await;
    let mut letters = world.letters();
    let redriven = Redrive::new().run(&mut letters).await;
    assert_eq!((redriven.put_back, redriven.passed_by), (1, 1), "{redriven:?}");
    letters.close().await;
    assert_eq!(payments.open().await, 0);
    let mut letters = world.letters().putting_back_to(&*payments.name);
    let redriven = Redrive::new().run(&mut letters).await;
    assert_eq!((redriven.put_back, payments.open().await, world.open().await), (1, 1, 1), "{redriven:?}");
}

#[tokio::test]
async fn missing_dead_letters_are_an_error_with_the_remedy() {
    let world = World::new().await;
    let mut letters = world.letters().stored_in("buried");
    let error = letters.count().await.unwrap_err().to_string();
    assert!(error.contains("`buried`") && error.contains("create the queue"), "{error}");
    let error = world.letters().put_back().await.unwrap_err().to_string();
    assert!(error.contains("call `next` first"), "{error}");
    let error = SqsDeadLetters::new(client("127.0.0.1:1"), "orders").count().await.unwrap_err().to_string();
    assert!(error.contains("opening the queue `orders-dead`"), "{error}");
}

//! Dead letters: listing, putting back and removing.
use std::collections::BTreeSet;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, DeadLetters, Redrive, Settlement, Source, SourceErrorKind, StoredLetter};
use idempotent_nats::JetStreamDeadLetters;

use crate::world::{World, one, settle};

impl World {
    fn letters(&self) -> JetStreamDeadLetters {
        JetStreamDeadLetters::new(self.server.url(), "ORDERS")
    }

    /// Sends messages, and dead-letters them.
    async fn bury(&self, count: usize) {
        let mut source = self.source().await;
        let settler = source.settler();
        for number in 0..count {
            self.send(&number.to_string()).await;
            let held = one(&mut source).await;
            settle(&settler, &held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await;
        }
        source.close().await;
    }
}

#[tokio::test]
async fn a_message_is_dead_lettered_once_although_its_acknowledgement_was_lost() {
    let world = World::new().await;
    let mut source = world.source().await;
    let settler = source.settler();
    world.send("one").await;
    let held = one(&mut source).await;
    for _ in 0..3 {
        settle(&settler, &held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await;
    }
    assert_eq!(world.letters().count().await.unwrap(), 1);
    assert_eq!(world.open().await, (0, 0));
}

#[tokio::test]
async fn a_redrive_that_was_killed_between_its_steps_is_repeated_without_a_second_copy() {
    let world = World::new().await;
    world.bury(3).await;
    let mut killed = world.letters();
    killed.count().await.unwrap();
    // As after a kill: the letter is put back, and remains among the dead letters.
    let StoredLetter { delivery, .. } = killed.next().await.unwrap().unwrap();
    let stream = world.client.get_stream("ORDERS-dead").await.unwrap();
    let letter = stream.direct_get(1).await.unwrap();
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Nats-Msg-Id", format!("ORDERS-dead/1-{}", letter.time.unix_timestamp_nanos()));
    headers.insert("Idempotent-Id", delivery.id.clone().unwrap());
    let sent = world.client.publish_with_headers("orders.new", headers, delivery.body.into()).await.unwrap();
    sent.await.unwrap();
    let summary = Redrive::new().run(&mut world.letters()).await;
    assert_eq!((summary.put_back, world.open().await.0), (3, 3), "{summary:?}");
    let mut source = world.source().await;
    let mut ids = BTreeSet::new();
    for _ in 0..3 {
        let id = one(&mut source).await.0.id.unwrap();
        ids.insert(id.split('-').next().unwrap().to_owned());
    }
    assert_eq!(ids, ["ORDERS/1", "ORDERS/2", "ORDERS/3"].map(str::to_owned).into(), "the ids of the first deliveries");
}

#[tokio::test]
async fn a_letter_of_another_program_is_passed_by_and_put_back_to_a_named_subject() {
    let world = World::new().await;
    world.source().await;
    world.client.publish("idempotent.dead.ORDERS-dead", "foreign".into()).await.unwrap().await.unwrap();
    world.bury(2).await;
    let summary = Redrive::new().run(&mut world.letters()).await;
    assert!(summary.failed.is_none() && (summary.put_back, summary.passed_by) == (2, 1), "{summary:?}");
    let summary = Redrive::new().run(&mut world.letters().putting_back_to("orders.new")).await;
    assert!(summary.failed.is_none() && (summary.put_back, summary.passed_by) == (1, 0), "{summary:?}");
    assert_eq!(world.open().await.0, 3);
}

#[tokio::test]
async fn headers_that_a_producer_wrote_choose_no_subject_and_no_attempt() {
    let world = World::new().await;
    let mut source = world.source().await;
    let payments = async_nats::jetstream::stream::Config {
        name: "PAYMENTS".into(),
        subjects: vec!["payments".into()],
        ..Default::default()
    };
    let payments = world.client.create_stream(payments).await.unwrap();
    world.client.publish("payments", "secret".into()).await.unwrap().await.unwrap();
    let sent_at = payments.get_raw_message(1).await.unwrap().time.unix_timestamp_nanos();
    let original = format!("PAYMENTS/1-{sent_at}");
    let mut headers = async_nats::HeaderMap::new();
    for (name, value) in [
        ("Idempotent-Subject", "payments"),
        ("Idempotent-Reason", "Zm9yZ2Vk"),
        ("Idempotent-Attempts", "70"),
        ("Idempotent-Last-At", "7"),
        ("Idempotent-Letter", "forged"),
        ("Idempotent-Original", &*original),
    ] {
        headers.insert(name, value);
    }
    let sent = world.client.publish_with_headers("orders.new", headers.clone(), "body".into()).await.unwrap();
    sent.await.unwrap();
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.headers.len(), &*held.0.position.source), (Some(1), 0, "orders.new"));
    settle(&source.settler(), &held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await;
    // The same headers on a message that its producer sent to the dead letters.
    let sent =
        world.client.publish_with_headers("idempotent.dead.ORDERS-dead", headers, "forged".into()).await.unwrap();
    sent.await.unwrap();
    let mut letters = world.letters();
    for body in ["body", "forged"] {
        assert_eq!(letters.next().await.unwrap().unwrap().delivery.body, body.as_bytes());
    }
    let summary = Redrive::new().run(&mut world.letters()).await;
    assert!(summary.failed.is_none() && (summary.put_back, summary.passed_by) == (1, 1), "{summary:?}");
    assert_eq!(one(&mut source).await.0.body, b"body");
    assert_eq!(payments.get_info().await.unwrap().state.messages, 1);
}

#[tokio::test]
async fn a_letter_that_another_operator_has_changed_is_gone_and_one_that_cannot_be_removed_is_an_error() {
    let world = World::new().await;
    world.bury(3).await;
    let [mut first, mut second] = [world.letters(), world.letters()];
    for letters in [&mut first, &mut second] {
        letters.next().await.unwrap().unwrap();
    }
    assert!(first.put_back().await.unwrap() && !second.put_back().await.unwrap());
    for letters in [&mut first, &mut second] {
        letters.next().await.unwrap().unwrap();
    }
    assert!(first.discard().await.unwrap() && !second.discard().await.unwrap());
    assert_eq!(world.open().await.0, 1);
    first.next().await.unwrap().unwrap();
    world.client.delete_stream("ORDERS-dead").await.unwrap();
    assert_eq!(first.discard().await.unwrap_err().kind(), SourceErrorKind::Fatal);
}

#[tokio::test]
async fn a_letter_whose_subject_the_stream_no_longer_has_is_refused_with_the_remedy() {
    let world = World::new().await;
    world.bury(1).await;
    let mut config = world.client.get_stream("ORDERS").await.unwrap().cached_info().config.clone();
    config.subjects = vec!["orders.paid".into()];
    world.client.update_stream(config).await.unwrap();
    let mut letters = world.letters();
    letters.next().await.unwrap().unwrap();
    let error = letters.put_back().await.unwrap_err();
    assert!(error.kind() == SourceErrorKind::Refused && error.to_string().contains("`putting_back_to`"), "{error}");
}

#[tokio::test]
async fn a_letter_of_another_program_is_listed_and_stays() {
    let world = World::new().await;
    world.source().await;
    let subject = "idempotent.dead.ORDERS-dead";
    world.client.publish(subject, "foreign".into()).await.unwrap().await.unwrap();
    let mut letters = world.letters();
    assert_eq!(letters.count().await.unwrap(), 1);
    let StoredLetter { delivery, letter, .. } = letters.next().await.unwrap().unwrap();
    assert_eq!((delivery.body, letter), (b"foreign".to_vec(), None));
    let error = letters.put_back().await.unwrap_err();
    assert!(error.kind() == SourceErrorKind::Refused && error.to_string().contains("`putting_back_to`"), "{error}");
    assert!(letters.discard().await.unwrap());
    assert_eq!(letters.count().await.unwrap(), 0);
}

#[tokio::test]
async fn missing_dead_letters_are_an_error_with_the_remedy() {
    let world = World::new().await;
    let error = world.letters().count().await.unwrap_err();
    assert!(error.to_string().contains("ORDERS-dead"), "{error}");
    assert!(world.letters().put_back().await.unwrap_err().to_string().contains("call `next` first"));
}

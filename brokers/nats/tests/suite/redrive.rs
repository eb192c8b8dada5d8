//! Dead letters: listing, putting back and removing.
use std::collections::BTreeSet;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, DeadLetters, Redrive, Settlement, Source, StoredLetter};
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
async fn two_redrives_at_once_put_each_letter_back_once() {
    let world = World::new().await;
    world.bury(30).await;
    let (mut one_operator, mut other) = (world.letters(), world.letters());
    let redrive = Redrive::new();
    let (first, second) = tokio::join!(redrive.run(&mut one_operator), redrive.run(&mut other));
    assert!(first.failed.is_none() && second.failed.is_none(), "{first:?} {second:?}");
    assert_eq!(world.letters().count().await.unwrap(), 0);
    assert_eq!(world.open().await.0, 30, "{first:?} {second:?}");
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
    assert!(error.to_string().contains("publish it yourself"), "{error}");
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

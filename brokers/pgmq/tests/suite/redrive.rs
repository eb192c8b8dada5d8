//! Dead letters: listing, putting back and removing.
use std::collections::BTreeSet;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, DeadLetters, Redrive, Settlement, Source, StoredLetter};
use idempotent_pgmq::PgmqDeadLetters;
use sqlx::Row;

use crate::world::{World, one, settle};

impl World {
    fn letters(&self) -> PgmqDeadLetters {
        PgmqDeadLetters::new(self.url(), "orders")
    }

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
async fn a_letter_has_the_jsonb_of_its_message_and_all_headers() {
    let world = World::new().await;
    world.source().await;
    let json = r#"{"n": 12345678901234567890.1230, "z": [1, null], "ä": "\u20ac", "a": ""}"#;
    let headers = r#"{"x-pgmq-group": "a", "n": 1.50, "list": [1, "a", {}]}"#;
    let send = sqlx::query("SELECT pgmq.send('orders', $1::jsonb, $2::jsonb)").bind(json).bind(headers);
    send.execute(&world.client).await.unwrap();
    let sent = sqlx::query("SELECT message::text, headers::text FROM pgmq.q_orders").fetch_one(&world.client);
    let sent = sent.await.unwrap();
    let mut source = world.source().await;
    let held = one(&mut source).await;
    assert_eq!(held.0.body, sent.get::<String, _>(0).into_bytes(), "the body is the text of the jsonb");
    settle(&source.settler(), &held, Settlement::DeadLetter(DeadLetter::because("a\0b", Timestamp(9)))).await;
    let read = "SELECT message::text, (headers - 'idempotent')::text FROM";
    for table in ["pgmq.q_orders_dead", "pgmq.q_orders"] {
        let statement = sqlx::AssertSqlSafe(format!("{read} {table}"));
        let row = sqlx::query(statement).fetch_one(&world.client).await.unwrap();
        for column in 0..2 {
            assert_eq!(row.get::<String, _>(column), sent.get::<String, _>(column), "{table}");
        }
        let redriven = Redrive::new().run(&mut world.letters()).await;
        assert!(redriven.failed.is_none(), "{redriven:?}");
    }
}

#[tokio::test]
async fn two_redrives_at_once_put_each_letter_back_once() {
    let world = World::new().await;
    world.bury(&["1"; 30]).await;
    let (mut one_operator, mut other) = (world.letters(), world.letters());
    let redrive = Redrive::new();
    let (first, second) = tokio::join!(redrive.run(&mut one_operator), redrive.run(&mut other));
    assert!(first.failed.is_none() && second.failed.is_none(), "{first:?} {second:?}");
    assert_eq!(world.letters().count().await.unwrap(), 0);
    assert_eq!((first.put_back + second.put_back, world.open().await), (30, 30), "{first:?} {second:?}");
}

#[tokio::test]
async fn a_redriven_message_keeps_the_id_of_its_first_delivery() {
    let world = World::new().await;
    let mut source = world.source().await;
    world.send("1").await;
    let held = one(&mut source).await;
    let letter = DeadLetter::because("no stock", Timestamp(9));
    settle(&source.settler(), &held, Settlement::DeadLetter(letter.clone())).await;
    let mut letters = world.letters();
    assert_eq!(letters.count().await.unwrap(), 1);
    let StoredLetter { delivery, letter: stored, .. } = letters.next().await.unwrap().unwrap();
    assert_eq!((&delivery.id, &*delivery.position.source, stored), (&held.0.id, "orders", Some(letter)));
    assert!(letters.next().await.unwrap().is_none());
    assert!(letters.put_back().await.unwrap());
    let again = one(&mut source).await;
    assert_eq!((&again.0.id, again.0.attempt, again.0.delivered, again.0.deaths), (&held.0.id, Some(1), Some(1), 1));
    assert_ne!(again.0.position, held.0.position);
}

#[tokio::test]
async fn a_letter_that_arrives_after_the_count_is_not_read() {
    let world = World::new().await;
    world.bury(&["1", "2"]).await;
    let mut letters = world.letters();
    assert_eq!(letters.count().await.unwrap(), 2);
    world.bury(&["3"]).await;
    let mut bodies = BTreeSet::new();
    while let Some(StoredLetter { delivery, .. }) = letters.next().await.unwrap() {
        bodies.insert(delivery.body);
    }
    assert_eq!(bodies, [b"1".to_vec(), b"2".to_vec()].into());
}

#[tokio::test]
async fn a_letter_of_another_program_is_listed_and_put_back_into_the_queue_of_the_handle() {
    let world = World::new().await;
    world.source().await;
    world.execute("SELECT pgmq.send('orders_dead', '{\"foreign\": true}')").await;
    let mut letters = world.letters();
    assert_eq!(letters.count().await.unwrap(), 1);
    let StoredLetter { delivery, letter, .. } = letters.next().await.unwrap().unwrap();
    assert_eq!((delivery.body, letter), (b"{\"foreign\": true}".to_vec(), None));
    assert!(letters.put_back().await.unwrap());
    assert_eq!((letters.count().await.unwrap(), world.open().await), (0, 1));
    world.execute("SELECT pgmq.send('orders_dead', '1')").await;
    letters.count().await.unwrap();
    letters.next().await.unwrap().unwrap();
    world.execute("DELETE FROM pgmq.q_orders_dead").await;
    assert!(!letters.discard().await.unwrap(), "another operator was first");
}

#[tokio::test]
async fn missing_dead_letters_are_an_error_with_the_remedy() {
    let world = World::new().await;
    let error = world.letters().count().await.unwrap_err();
    assert!(error.to_string().contains("`orders_dead`"), "{error}");
    assert!(world.letters().put_back().await.unwrap_err().to_string().contains("call `next` first"));
}

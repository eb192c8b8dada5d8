//! Dead letters: listing, putting back and removing.
use std::collections::BTreeSet;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, DeadLetters, Redrive, Settlement, Source, StoredLetter};
use idempotent_pgmq::PgmqDeadLetters;
use sqlx::Row;

use crate::world::{World, ms, one, retry, settle, until};

impl World {
    pub(crate) fn letters(&self) -> PgmqDeadLetters {
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
async fn a_closed_handle_has_no_connection() {
    let world = World::new().await;
    world.bury(&["1"]).await;
    let open =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'idempotent'";
    until("the source is gone", async || world.number(open).await == 0).await;
    let mut letters = world.letters();
    letters.next().await.unwrap().unwrap();
    assert!(world.number(open).await > 0);
    letters.close().await;
    until("the handle has no connection", async || world.number(open).await == 0).await;
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
async fn a_letter_that_names_another_queue_is_passed_by_and_put_back_to_a_named_queue() {
    let world = World::new().await;
    world.source().await;
    world.execute("SELECT pgmq.create('payments')").await;
    for queue in ["payments", "no queue; at all"] {
        let own = format!(r#"{{"idempotent": {{"letter": {{"queue": "{queue}", "reason": "x", "last_at": 1}}}}}}"#);
        world.execute(&format!("SELECT pgmq.send('orders_dead', '1', '{own}'::jsonb)")).await;
    }
    world.bury(&["2"]).await;
    let summary = Redrive::new().run(&mut world.letters()).await;
    assert!(summary.failed.is_none() && (summary.put_back, summary.passed_by) == (1, 2), "{summary:?}");
    assert_eq!(world.number("SELECT count(*) FROM pgmq.q_payments").await, 0);
    let summary = Redrive::new().run(&mut world.letters().putting_back_to("payments")).await;
    assert!(summary.failed.is_none() && (summary.put_back, summary.passed_by) == (2, 0), "{summary:?}");
    assert_eq!(world.number("SELECT count(*) FROM pgmq.q_payments").await, 2);
}

#[tokio::test]
async fn marks_that_a_producer_wrote_choose_neither_attempt_nor_count_nor_queue() {
    let world = World::new().await;
    let mut source = world.source().await;
    let settler = source.settler();
    let own = r#"{"idempotent": {"attempt": 70, "settled": 900, "sent": 0, "letter": {"queue": "payments"}}}"#;
    world.execute(&format!("SELECT pgmq.send('orders', '1', '{own}'::jsonb)")).await;
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.delivered), (Some(1), Some(1)));
    settle(&settler, &held, Settlement::GiveBack).await;
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.delivered), (Some(1), Some(1)), "a return believes nothing either");
    settle(&settler, &held, retry(ms(1))).await;
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.delivered), (Some(2), Some(1)), "the mark of the adapter counts");
    settle(&settler, &held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await;
    let summary = Redrive::new().run(&mut world.letters()).await;
    assert!(summary.failed.is_none() && summary.put_back == 1, "{summary:?}");
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.delivered, &*held.0.position.source), (Some(1), Some(1), "orders"));
}

#[tokio::test]
async fn rows_with_any_values_are_delivered_and_hold_up_nothing() {
    let world = World::new().await;
    let mut source = world.source().await;
    let settler = source.settler();
    for time in ["infinity", "-infinity", "294276-12-31 23:59:59.999999+00", "4713-01-02 00:00:00+00 BC"] {
        let row = format!("(enqueued_at, vt, message, headers) VALUES ('{time}', now(), NULL, '[\"a\", {{}}]')");
        world.execute(&format!("INSERT INTO pgmq.q_orders {row}")).await;
    }
    world.execute("SELECT pgmq.send('orders', '1', '\"text\"'::jsonb)").await;
    let (mut values, mut dead) = (Vec::new(), 0);
    while dead < 5 {
        let held = one(&mut source).await;
        assert_eq!(held.0.delivered, Some(1));
        if held.0.attempt == Some(1) {
            settle(&settler, &held, retry(ms(1))).await;
        } else {
            assert_eq!(held.0.attempt, Some(2));
            settle(&settler, &held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await;
            dead += 1;
        }
    }
    let summary = Redrive::new().run(&mut world.letters()).await;
    assert!(summary.failed.is_none() && summary.put_back == 5, "{summary:?}");
    for _ in 0..5 {
        let held = one(&mut source).await;
        values.push(held.0.headers.first("").map(|value| String::from_utf8_lossy(value).into_owned()));
        settle(&settler, &held, Settlement::Ack).await;
    }
    values.sort();
    assert_eq!(values.iter().flatten().collect::<Vec<_>>(), [&["[\"a\", {}]"; 4][..], &["text"]].concat());
}

#[tokio::test]
async fn missing_dead_letters_are_an_error_with_the_remedy() {
    let world = World::new().await;
    let error = world.letters().count().await.unwrap_err();
    assert!(error.to_string().contains("`orders_dead`"), "{error}");
    assert!(world.letters().put_back().await.unwrap_err().to_string().contains("call `next` first"));
}

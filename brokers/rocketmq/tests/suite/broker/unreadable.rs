//! Messages that the client cannot decode as a whole.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent_core::Timestamp;
use idempotent_mq::{Consumer, DeadLetter, DeadLetters, KeyFrom, Messages, Redrive, Settlement, StoredLetter};
use idempotent_rocketmq::RocketDeadLetters;
use rocketmq_model::common::compression::compression_type::CompressionType;
use tokio::sync::oneshot;

use crate::broker::world::{ManualConsumer, World, executor, until, within};
use crate::raw_message::{UNKNOWN, ZLIB, ZSTD, send_batch, send_raw};

fn letters_of(world: &World) -> RocketDeadLetters {
    RocketDeadLetters::new(world.server.url(), &world.topic, &world.group).unwrap()
}

/// The client skips such a message and all later ones of the same response, so they must not reach it in one.
#[tokio::test]
async fn messages_whose_bodies_cannot_be_decompressed_become_dead_letters_and_all_others_run() {
    let world = World::new("unreadable-1").await;
    let broker = world.server.address();
    for number in 0..20 {
        let id = format!("good-{number}");
        send_raw(&broker, &world.topic, 0, &[("UNIQ_KEY", &id)], b"body").await;
        for (name, flags) in [("unknown", UNKNOWN), ("damaged", ZLIB)] {
            if number == 5 {
                send_raw(&broker, &world.topic, flags, &[("UNIQ_KEY", name), ("trace", "1")], b"odd").await;
            }
        }
    }
    let runs = Arc::<AtomicU32>::default();
    let counted = runs.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_| {
        counted.fetch_add(1, SeqCst);
        async { Ok::<_, &str>(()) }
    });
    let consumer = Consumer::builder(world.source(), "billing", executor()).build(handling).unwrap();
    let (counters, (stop, stopped)) = (consumer.counters(), oneshot::channel::<()>());
    let task = tokio::spawn(consumer.run(async move { drop(stopped.await) }));
    for death in [2, 4] {
        until("all messages are settled", async || {
            let counts = counters.counts();
            (counts.acked == 20 && counts.dead_lettered == death).then_some(())
        })
        .await;
        let mut letters = letters_of(&world);
        until("the letters", async || (letters.count().await.unwrap() == 2).then_some(())).await;
        while let Some(StoredLetter { delivery, letter, .. }) = letters.next().await.unwrap() {
            assert_eq!((&delivery.body[..], delivery.headers.first("trace")), (&b"odd"[..], Some(&b"1"[..])));
            let letter = letter.unwrap();
            assert!(letter.reason.contains("cannot be decompressed"), "{}", letter.reason);
            assert_eq!(u64::from(letter.deaths), death / 2);
        }
        letters.close().await;
        if death == 2 {
            // A redriven message is as unreadable as before.
            assert_eq!(Redrive::new().run(&mut letters_of(&world)).await.put_back, 2);
        }
    }
    assert_eq!(Redrive::new().discarding().run(&mut letters_of(&world)).await.discarded, 2);
    world.emptied().await;
    stop.send(()).unwrap();
    within("the drain", task).await.unwrap().unwrap();
    assert_eq!(runs.load(SeqCst), 20);
}

#[tokio::test]
async fn a_compressed_body_of_another_client_arrives_in_deliveries_copies_and_letters() {
    let world = World::new("unreadable-2").await;
    let mut consumer = world.consumer();
    let body = b"body ".repeat(2_000);
    for (id, flags, compression) in [("zlib", ZLIB, CompressionType::Zlib), ("zstd", ZSTD, CompressionType::Zstd)] {
        let compressed = compression.try_compression(&body).unwrap();
        send_raw(&world.server.address(), &world.topic, flags, &[("UNIQ_KEY", id)], &compressed).await;
        let held = consumer.next().await;
        assert!(held.0.body == body && held.0.unreadable.is_none(), "{id}");
        consumer.settle(&held, &Settlement::GiveBack).await.unwrap();
        let held = consumer.next().await;
        assert!(held.0.body == body, "{id}");
        let letter = DeadLetter::because("no stock", Timestamp(9));
        consumer.settle(&held, &Settlement::DeadLetter(letter)).await.unwrap();
        let mut letters = letters_of(&world);
        until("the letter", async || (letters.count().await.unwrap() == 1).then_some(())).await;
        let letter = letters.next().await.unwrap().unwrap().delivery;
        assert!(letter.body == body && letter.unreadable.is_none(), "{id}");
        assert!(letters.put_back().await.unwrap());
        letters.close().await;
        let held = consumer.next().await;
        assert!(held.0.body == body && held.0.unreadable.is_none(), "{id}");
        consumer.settle(&held, &Settlement::Ack).await.unwrap();
    }
}

#[tokio::test]
async fn properties_that_are_not_utf8_arrive_with_replacement_characters() {
    let world = World::new("unreadable-3").await;
    send_batch(&world.server.address(), &world.topic, b"UNIQ_KEY\x01m\x02trace\x01a\xffb\x02", b"body").await;
    for orderly in [false, true] {
        let builder = if orderly { world.builder().orderly() } else { world.builder() };
        let mut consumer = ManualConsumer(builder.build().unwrap());
        let held = consumer.next().await;
        assert_eq!((held.0.id.as_deref(), &held.0.body[..]), (Some("m"), &b"body"[..]));
        assert_eq!(held.0.headers.first("trace"), Some("a\u{fffd}b".as_bytes()));
        let how = if orderly { Settlement::Ack } else { Settlement::GiveBack };
        consumer.settle(&held, &how).await.unwrap();
        within("the end", idempotent_mq::Source::close(&mut consumer.0)).await;
    }
}

//! Messages and their copies near the largest size that the broker stores.
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::{
    DeadLetter, DeadLetters, Delivery, OutboundMessage, PublishErrorKind, Retry, Settlement, Source, SourceErrorKind,
    StoredLetter,
};
use idempotent_rocketmq::{RocketDeadLetters, RocketTag};
use rocketmq_model::common::compression::compression_type::CompressionType;

use crate::broker::world::{ManualConsumer, World, until};
use crate::raw_message::{ZSTD, send_raw};

/// The broker's default of `maxMessageSize`.
const MOST: usize = 4 << 20;
/// The largest properties of a message that is published, retried, or dead-lettered as a whole.
const PUBLISHED: usize = 28_671;
const RETRIED: usize = 30_719;
const DEAD: usize = 29_183;
/// The length of the properties `UNIQ_KEY` and `trace` without the value of the latter.
const OTHERS: usize = "UNIQ_KEY..m.trace.".len();

type Held = (Delivery, RocketTag);

/// Returns a value for `trace` with which all properties have this length.
fn trace(properties: usize) -> String {
    "t".repeat(properties - OTHERS)
}

/// Returns bytes that cannot be compressed.
fn random(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = std::iter::repeat_with(&mut next).take(length / 8 + 1).flatten().collect();
    bytes.truncate(length);
    bytes
}

fn retry() -> Settlement {
    Settlement::Retry(Retry::after(Duration::from_secs(1), Timestamp(17)))
}

fn because(reason: &str) -> Settlement {
    Settlement::DeadLetter(DeadLetter::because(reason.to_owned(), Timestamp(9)))
}

impl World {
    /// Sends a message with properties of this length, and receives it.
    async fn held(&self, consumer: &mut ManualConsumer, properties: usize) -> Held {
        let trace = trace(properties);
        send_raw(&self.server.address(), &self.topic, 0, &[("UNIQ_KEY", "m"), ("trace", &trace)], b"body").await;
        let held = consumer.next().await;
        assert_eq!(held.0.headers.first("trace").map(<[u8]>::len), Some(trace.len()));
        held
    }

    /// Returns the only dead letter, and removes it.
    async fn letter(&self) -> StoredLetter {
        let mut letters = RocketDeadLetters::new(self.server.url(), &self.topic, &self.group).unwrap();
        until("the letter", async || (letters.count().await.unwrap() == 1).then_some(())).await;
        let letter = letters.next().await.unwrap().unwrap();
        assert!(letters.discard().await.unwrap());
        letters.close().await;
        assert_eq!(letter.delivery.unreadable, None);
        letter
    }
}

#[tokio::test]
async fn a_published_message_with_the_most_properties_arrives_and_one_byte_more_is_refused_by_name() {
    let world = World::new("sizes-1").await;
    let mut consumer = world.consumer();
    let publish = async |properties| {
        let message = world.message("m", "body").header("trace", trace(properties));
        world.publisher.publish(&message).await
    };
    for properties in [PUBLISHED - 1, PUBLISHED] {
        publish(properties).await.unwrap();
        let held = consumer.next().await;
        assert_eq!(held.0.headers.first("trace").map(<[u8]>::len), Some(properties - OTHERS));
        // Each copy of it has room for the longest data of the adapter.
        consumer.insist(&held, &retry()).await;
        let held = consumer.next().await;
        consumer.insist(&held, &because(&"long".repeat(1_000))).await;
        let letter = world.letter().await;
        assert_eq!(letter.delivery.headers.first("trace").map(<[u8]>::len), Some(properties - OTHERS));
        assert!(letter.letter.unwrap().reason.ends_with("longlong"));
    }
    let error = publish(PUBLISHED + 1).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Refused, "{error}");
    for part in ["`sizes-1`", "take 28672 bytes", "leaves 28671", "send shorter headers"] {
        assert!(error.to_string().contains(part), "{part} is not in: {error}");
    }
    // Nothing of the refused message is stored.
    world.emptied().await;
}

#[tokio::test]
async fn a_published_body_of_the_size_limit_arrives_and_one_byte_more_is_refused_by_name() {
    let world = World::new("sizes-2").await;
    let mut consumer = world.consumer();
    // The broker counts the body as the client has compressed it, with some bytes more if it cannot be compressed.
    let body = random(MOST);
    let added = CompressionType::Zlib.try_compression(&body).unwrap().len() - MOST;
    let publish = async |length: usize| {
        let message = OutboundMessage::new(&world.topic, "m", &body[..length]);
        world.publisher.publish(&message).await
    };
    for length in [MOST - added - 1, MOST - added] {
        publish(length).await.unwrap();
        let held = consumer.next().await;
        assert!(held.0.body == body[..length], "a body of {length} bytes is another one");
        // A copy has the same size.
        consumer.insist(&held, &because("no stock")).await;
        assert!(world.letter().await.delivery.body == body[..length]);
    }
    let error = publish(MOST - added + 1).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Refused, "{error}");
    for part in ["`sizes-2`", "larger than `maxMessageSize`", "shrink the message, or raise"] {
        assert!(error.to_string().contains(part), "{part} is not in: {error}");
    }
    // Nothing of the refused message is stored.
    world.emptied().await;
}

#[tokio::test]
async fn a_body_beyond_the_frame_of_the_client_is_refused_by_name() {
    let world = World::new("sizes-3").await;
    let error = world.publisher.publish(&OutboundMessage::new(&world.topic, "m", random(17 << 20))).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("shrink the message"), "{error}");
    // The connection is usable.
    world.publish(world.message("small", "b")).await;
}

#[tokio::test]
async fn a_retry_with_the_most_properties_is_stored_and_one_byte_more_is_refused_and_dead_lettered() {
    let world = World::new("sizes-4").await;
    let mut consumer = world.consumer();
    for properties in [RETRIED - 1, RETRIED] {
        let held = world.held(&mut consumer, properties).await;
        let mut long = Retry::after(Duration::from_secs(1), Timestamp(17));
        long.reason = "long".repeat(1_000).into();
        let long = Settlement::Retry(long);
        consumer.insist(&held, &long).await;
        let held = consumer.next().await;
        assert_eq!(held.0.headers.first("trace").map(<[u8]>::len), Some(properties - OTHERS));
        consumer.settle(&held, &Settlement::Ack).await.unwrap();
    }
    let held = world.held(&mut consumer, RETRIED + 1).await;
    let error = consumer.settle(&held, &retry()).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Refused, "{error}");
    for part in ["take 30720 bytes", "leaves 30719", "send shorter properties"] {
        assert!(error.to_string().contains(part), "{part} is not in: {error}");
    }
    consumer.insist(&held, &because("no stock")).await;
    assert!(world.letter().await.letter.unwrap().reason.starts_with("no stock; the letter lacks `trace`"));
    world.emptied().await;
}

#[tokio::test]
async fn a_letter_with_the_most_properties_is_whole_and_one_byte_more_leaves_out_the_longest() {
    let world = World::new("sizes-5").await;
    let mut consumer = world.consumer();
    // The last message has the most properties that the broker stores. Each one returns once before its death.
    for properties in [DEAD - 1, DEAD, DEAD + 1, 32_600] {
        let held = world.held(&mut consumer, properties).await;
        consumer.insist(&held, &Settlement::GiveBack).await;
        let held = consumer.next().await;
        consumer.insist(&held, &because("no stock")).await;
        let StoredLetter { delivery, letter, .. } = world.letter().await;
        let is_whole = properties <= DEAD;
        assert_eq!(delivery.headers.first("trace").is_some(), is_whole, "{properties}");
        assert_eq!((delivery.id.as_deref(), &delivery.body[..]), (Some("m"), &b"body"[..]));
        let reason = letter.unwrap().reason;
        assert_eq!(reason == "no stock", is_whole, "{reason}");
        assert!(is_whole || reason.contains("lacks `trace`") && reason.contains("more than 29183 bytes"), "{reason}");
    }
    world.emptied().await;
}

/// The copies of this body are compressed by another algorithm than the message, and are larger.
#[tokio::test]
async fn a_letter_that_the_broker_refuses_refers_to_its_message() {
    let world = World::new("sizes-6").await;
    let mut consumer = world.consumer();
    let body = random(1 << 20).repeat(5);
    let compressed = CompressionType::Zstd.try_compression(&body).unwrap();
    assert!(compressed.len() < MOST, "{}", compressed.len());
    send_raw(&world.server.address(), &world.topic, ZSTD, &[("UNIQ_KEY", "m"), ("trace", "1")], &compressed).await;
    let held = consumer.next().await;
    assert!(held.0.body == body);
    for how in [retry(), Settlement::GiveBack] {
        let error = consumer.settle(&held, &how).await.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("`sizes-6-group-retry`: the broker rejects"), "{error}");
    }
    // Without a copy, a dropped delivery returns from the memory of the source, with its position.
    drop(held);
    let held = consumer.next().await;
    assert!(held.0.body == body);
    consumer.insist(&held, &because("no stock")).await;
    world.emptied().await;
    let mut letters = RocketDeadLetters::new(world.server.url(), &world.topic, &world.group).unwrap();
    until("the letter", async || (letters.count().await.unwrap() == 1).then_some(())).await;
    let StoredLetter { delivery, letter, .. } = letters.next().await.unwrap().unwrap();
    assert!(delivery.body.is_empty() && delivery.headers.first("trace") == Some(b"1"));
    let (reason, place) = (letter.unwrap().reason, "offset 0 of queue 0 of `sizes-6` on broker-a");
    assert!(reason.starts_with("no stock; the letter lacks the body") && reason.contains(place), "{reason}");
    let error = letters.put_back().await.unwrap_err();
    assert!(error.kind() == SourceErrorKind::Refused && error.to_string().contains(place), "{error}");
    assert!(letters.discard().await.unwrap());
    letters.close().await;
    consumer.0.close().await;
}

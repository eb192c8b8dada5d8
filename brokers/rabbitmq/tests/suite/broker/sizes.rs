//! Messages near the limits of the broker: the size of a frame for the headers, and the size of a body.
use std::sync::Arc;

use idempotent_core::{MemoryStore, Policy, Timestamp};
use idempotent_mq::{DeadLetter, OutboundMessage, PublishErrorKind, Redrive, Retry, Settlement, SourceErrorKind};
use idempotent_rabbitmq::{Queue, RabbitDeadLetters, RabbitPublisher};
use lapin::BasicProperties;
use lapin::message::BasicGetMessage;
use lapin::types::{AMQPValue, FieldTable};

use crate::broker::world::{Log, ManualSource, Process, SERVER, World, again, executor, ms, named, until};

/// The broker's default `frame_max`.
const FRAME_MAX: usize = 131_072;

fn with_header(bytes: usize) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("h".into(), AMQPValue::LongString("v".repeat(bytes).into()));
    headers.insert("tenant".into(), AMQPValue::LongString("acme".into()));
    named("m").with_headers(headers)
}

fn retry() -> Settlement {
    Settlement::Retry(Retry::after(ms(100), Timestamp(1)))
}

/// Returns whether a retry of a message with a header of this size is stored. A refused one is acknowledged.
async fn is_retried(world: &World, source: &mut ManualSource, bytes: usize) -> bool {
    world.send(b"{}", with_header(bytes)).await;
    let first = source.next().await;
    let is_stored = match source.settle(&first, retry()).await {
        Ok(()) => {
            let copy = source.next().await;
            assert_eq!((copy.0.attempt, copy.0.headers.first("h").map(<[u8]>::len)), (Some(2), Some(bytes)));
            source.settle(&copy, Settlement::Ack).await.unwrap();
            return true;
        }
        Err(error) => {
            assert_eq!(error.kind(), SourceErrorKind::Refused);
            assert!(error.to_string().contains("frame_max"), "{error}");
            false
        }
    };
    source.settle(&first, Settlement::Ack).await.unwrap();
    is_stored
}

#[tokio::test]
async fn a_retry_is_delivered_up_to_the_largest_headers_and_refused_with_one_byte_more() {
    for (name, queue) in
        [("sizes.classic", Queue::classic("sizes.classic")), ("sizes.quorum", Queue::quorum("sizes.quorum"))]
    {
        let world = World::new(name).await;
        let mut source = world.opened(queue).await;
        let (mut fits, mut refused) = (FRAME_MAX - 4_000, FRAME_MAX - 100);
        while refused - fits > 1 {
            let middle = fits.midpoint(refused);
            match is_retried(&world, &mut source, middle).await {
                true => fits = middle,
                false => refused = middle,
            }
        }
        let mut stored = [false; 3];
        for (more, stored) in stored.iter_mut().enumerate() {
            *stored = is_retried(&world, &mut source, fits - 1 + more).await;
        }
        assert_eq!(stored, [true, true, false]);
        // What docs/limits.md promises.
        assert!(FRAME_MAX - fits < 1_500, "{fits}");
    }
}

async fn settled_letter(world: &World, source: &mut ManualSource, bytes: usize) -> BasicGetMessage {
    world.send(b"{}", with_header(bytes)).await;
    let held = source.next().await;
    source.settle(&held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await.unwrap();
    world.dead().await
}

fn header(letter: &BasicGetMessage, name: &str) -> Option<AMQPValue> {
    letter.properties.headers().as_ref().unwrap().inner().get(name).cloned()
}

fn reason(letter: &BasicGetMessage) -> String {
    match header(letter, "x-idempotent-reason") {
        Some(AMQPValue::LongString(text)) => text.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_dead_letter_keeps_its_headers_up_to_the_largest_ones_and_names_a_header_that_it_loses() {
    let world = World::new("sizes.letters").await;
    let mut source = world.opened(Queue::quorum("sizes.letters")).await;
    let is_whole = |letter: &BasicGetMessage| header(letter, "h").is_some();
    let (mut fits, mut too_large) = (FRAME_MAX - 4_000, FRAME_MAX - 100);
    while too_large - fits > 1 {
        let middle = fits.midpoint(too_large);
        match is_whole(&settled_letter(&world, &mut source, middle).await) {
            true => fits = middle,
            false => too_large = middle,
        }
    }
    assert!(FRAME_MAX - fits < 700, "{fits}");
    for (bytes, whole) in [(fits - 1, true), (fits, true), (fits + 1, false)] {
        let letter = settled_letter(&world, &mut source, bytes).await;
        assert_eq!(is_whole(&letter), whole);
        assert_eq!(header(&letter, "tenant"), Some(AMQPValue::LongString("acme".into())));
        let reason = reason(&letter);
        assert_eq!(reason.contains("stored without the headers h,"), !whole, "{reason}");
        assert!(reason.contains("no stock"), "{reason}");
    }
    // A whole letter of the largest size can be put back.
    world.send(b"{}", with_header(fits)).await;
    let held = source.next().await;
    source.settle(&held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await.unwrap();
    let mut letters = RabbitDeadLetters::new(SERVER.url(), "sizes.letters").unwrap();
    assert_eq!(Redrive::new().run(&mut letters).await.put_back, 1);
    let back = source.next().await;
    assert_eq!(back.0.headers.first("h").map(<[u8]>::len), Some(fits));
    source.settle(&back, Settlement::Ack).await.unwrap();
}

#[tokio::test]
async fn a_message_whose_retry_is_too_large_is_a_dead_letter_after_one_run_and_the_reason_says_so() {
    let world = World::new("sizes.consumer").await;
    world.source().declare().await.unwrap();
    let (log, store) = (Arc::new(Log::default()), Arc::new(MemoryStore::new()));
    let process = Process::start(world.source(), "billing", &executor(&store, Policy::new()), log.by_id(again), |b| b);
    for (runs, bytes) in [(1, 130_700), (2, 130_950)] {
        let properties = with_header(bytes).with_message_id(bytes.to_string().into());
        world.send(b"{}", properties).await;
        let letter = world.dead().await;
        let reason = reason(&letter);
        assert!(reason.contains("frame_max") && reason.contains("stored without the headers h"), "{reason}");
        assert_eq!((log.runs(), &letter.data[..]), (runs, &b"{}"[..]));
    }
    process.until("both are dead letters", |counts| counts.dead_lettered == 2).await;
    let counts = process.stop().await;
    assert_eq!((counts.received, counts.revoked, counts.retried), (2, 0, 0));
}

#[tokio::test]
async fn a_published_message_has_headers_up_to_the_largest_frame() {
    let world = World::new("sizes.published").await;
    world.declare("sizes.published").await;
    let publisher = RabbitPublisher::builder(SERVER.url()).build().unwrap();
    let publish = async |bytes: usize| {
        let message = OutboundMessage::new("sizes.published", "m", "{}").header("h", "v".repeat(bytes));
        publisher.publish(&message).await
    };
    // The frame: 20, and its properties: flags 2, headers 4 + 7, delivery mode 1, id 2.
    let most = FRAME_MAX - 36;
    for bytes in [most - 1, most] {
        publish(bytes).await.unwrap();
        let message = until("the message", async || world.take("sizes.published").await).await;
        assert!(header(&message, "h").is_some());
    }
    let refused = publish(most + 1).await.unwrap_err();
    assert!(refused.kind() == PublishErrorKind::Refused && refused.to_string().contains("frame_max"), "{refused}");
    publish(1).await.unwrap();
}

/// The broker's limit for bodies, which ends with the drop.
struct BodyLimit;

impl BodyLimit {
    async fn set(bytes: usize) -> Self {
        tokio::task::spawn_blocking(move || Self::put(bytes)).await.unwrap();
        Self
    }

    fn put(bytes: usize) {
        // RabbitMQ 4 reads the second place.
        SERVER.eval(&format!(
            "application:set_env(rabbit, max_message_size, {bytes}), persistent_term:put(max_message_size, {bytes}), \"done\"."
        ));
    }
}

impl Drop for BodyLimit {
    fn drop(&mut self) {
        Self::put(16_777_216);
    }
}

#[tokio::test]
async fn a_copy_of_a_body_over_a_lowered_limit_is_refused_and_its_message_stays() {
    const LIMIT: usize = 1_000;
    let world = World::alone("sizes.body").await;
    let mut source = world.opened(Queue::classic("sizes.body")).await;
    for bytes in [LIMIT - 1, LIMIT, LIMIT + 1] {
        world.send(&vec![b'x'; bytes], named("m")).await;
    }
    let held = [source.next().await, source.next().await, source.next().await];
    // New channels have the limit.
    let limit = BodyLimit::set(LIMIT).await;
    for fits in &held[..2] {
        source.settle(fits, retry()).await.unwrap();
    }
    for settlement in [retry(), Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))] {
        let error = source.settle(&held[2], settlement).await.unwrap_err();
        assert!(error.kind() == SourceErrorKind::Refused && error.to_string().contains("max_message_size"), "{error}");
    }
    let publisher = RabbitPublisher::builder(SERVER.url()).build().unwrap();
    for bytes in [LIMIT - 1, LIMIT, LIMIT + 1] {
        let published = publisher.publish(&OutboundMessage::new("sizes.body", "p", vec![b'x'; bytes])).await;
        let refused = published.err().map(|error| error.kind());
        assert_eq!(refused, (bytes > LIMIT).then_some(PublishErrorKind::Refused));
    }
    drop(limit);
    source.settle(&held[2], retry()).await.unwrap();
}

#[tokio::test]
async fn a_letter_whose_body_exceeds_a_lowered_limit_is_passed_by_and_the_others_are_put_back() {
    let world = World::alone("sizes.letter").await;
    world.source().declare().await.unwrap();
    for (id, bytes) in [("large", 1_001), ("small", 1_000)] {
        world.send_to("", "sizes.letter.dead", &vec![b'x'; bytes], named(id)).await;
    }
    let limit = BodyLimit::set(1_000).await;
    let mut letters = RabbitDeadLetters::new(SERVER.url(), "sizes.letter").unwrap();
    let redriven = Redrive::new().run(&mut letters).await;
    assert!(redriven.failed.is_none(), "{redriven:?}");
    assert_eq!((redriven.put_back, redriven.passed_by), (1, 1));
    drop((letters, limit));
    assert_eq!(world.ids().await.into_keys().collect::<Vec<_>>(), ["small"]);
    until("the letter stays", async || (world.count("sizes.letter.dead").await == 1).then_some(())).await;
}

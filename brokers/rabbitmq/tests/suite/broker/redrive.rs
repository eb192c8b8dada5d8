//! Redriving dead letters.
use idempotent_core::Timestamp;
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_mq::{DeadLetter, DeadLetters, Redrive, Settlement, SourceErrorKind, StoredLetter};
use idempotent_rabbitmq::{Queue, RabbitDeadLetters};
use lapin::message::BasicGetMessage;
use lapin::types::{AMQPValue, FieldTable};

use crate::broker::dead_letters::every_type;
use crate::broker::world::{ManualSource, SERVER, World, named, until};

fn letters_of(queue: &str) -> RabbitDeadLetters {
    RabbitDeadLetters::new(SERVER.url(), queue).unwrap()
}

/// Sends a message with each body, and dead-letters the messages.
async fn dead_letter(world: &World, source: &mut ManualSource, bodies: &[&[u8]]) {
    for (number, body) in bodies.iter().enumerate() {
        let properties = named(&format!("m-{number}")).with_headers(every_type()).with_reply_to("r".into());
        world.send(body, properties.with_correlation_id("c".into()).with_type("t".into())).await;
        let held = source.next().await;
        source.settle(&held, Settlement::DeadLetter(DeadLetter::because("why", Timestamp(9)))).await.unwrap();
    }
}

fn id(message: &BasicGetMessage) -> &str {
    message.properties.message_id().as_ref().unwrap().as_str()
}

async fn all(world: &World, queue: &str) -> Vec<BasicGetMessage> {
    let mut all = Vec::new();
    while let Some(one) = world.take(queue).await {
        all.push(one);
    }
    all
}

/// Waits until this number of letters is ready in the queue.
async fn are_ready(world: &World, queue: &str, letters: u32) {
    until("the letters", async || (world.count(queue).await == letters).then_some(())).await;
}

#[tokio::test]
async fn letters_are_put_back_to_a_named_queue_and_an_invalid_name_is_refused() {
    let world = World::new("moved").await;
    let mut source = world.opened(Queue::classic("moved")).await;
    world.declare("moved.others").await;
    dead_letter(&world, &mut source, &[b"one", b"two"]).await;
    drop(source);
    are_ready(&world, "moved.dead", 2).await;
    let redriven = Redrive::new().run(&mut letters_of("moved").putting_back_to("moved.others").unwrap()).await;
    assert_eq!((redriven.put_back, redriven.failed.is_none()), (2, true), "{redriven:?}");
    assert_eq!((world.count("moved").await, world.count("moved.dead").await), (0, 0));
    assert_eq!(all(&world, "moved.others").await.iter().map(id).collect::<Vec<_>>(), ["m-0", "m-1"]);
    for name in [String::new(), "x".repeat(256)] {
        assert!(letters_of("moved").putting_back_to(name).is_err());
    }
}

async fn byte_for_byte(name: &str, queue: Queue) {
    let world = World::new(name).await;
    let dead = format!("{name}.dead");
    let mut source = world.opened(queue.clone()).await;
    let long: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let bodies = [&b"\xff{not json\0"[..], b"", &long];
    dead_letter(&world, &mut source, &bodies).await;
    drop(source);

    // Listing the letters changes nothing.
    let mut letters = letters_of(name);
    assert_eq!(letters.count().await.unwrap(), 3);
    let mut seen = Vec::new();
    while let Some(StoredLetter { delivery, letter, .. }) = letters.next().await.unwrap() {
        assert_eq!((letter.unwrap().attempts, delivery.deaths), (1, 1));
        seen.push((delivery.id.unwrap(), delivery.body.len()));
    }
    assert_eq!(seen, [("m-0".to_owned(), 11), ("m-1".to_owned(), 0), ("m-2".to_owned(), 1 << 20)]);
    drop(letters);
    are_ready(&world, &dead, 3).await;

    let redriven = Redrive::new().limit(2).run(&mut letters_of(name)).await;
    assert_eq!((redriven.put_back, redriven.failed.is_none()), (2, true), "{redriven:?}");
    are_ready(&world, &dead, 1).await;
    let redriven = Redrive::new().run(&mut letters_of(name)).await;
    assert_eq!((redriven.put_back, redriven.failed.is_none()), (1, true), "{redriven:?}");
    assert_eq!(world.count(&dead).await, 0);

    let back = all(&world, name).await;
    assert_eq!(back.iter().map(id).collect::<Vec<_>>(), ["m-0", "m-1", "m-2"]);
    for (received, sent) in back.iter().zip(bodies) {
        assert!(received.data == sent);
        let mut headers = received.properties.headers().clone().unwrap().inner().clone();
        headers.retain(|name, _| !name.as_str().starts_with("x-idempotent-"));
        // The count of the queue from which the message was just taken.
        assert!(matches!(headers.remove("x-delivery-count"), None | Some(AMQPValue::LongLongInt(0))));
        assert_eq!(FieldTable::from(headers), every_type());
        let properties = received.properties.clone().with_headers(FieldTable::default());
        let sent = named(id(received)).with_headers(FieldTable::default()).with_reply_to("r".into());
        assert_eq!(properties, sent.with_correlation_id("c".into()).with_type("t".into()).with_delivery_mode(2));
        world.send(&received.data, received.properties.clone()).await;
    }
    let mut source = ManualSource(world.source_of(queue), world.queue.clone());
    let first = source.next().await;
    assert_eq!((first.0.attempt, first.0.deaths, first.0.first_at), (Some(1), 1, Some(Timestamp(9))));
    assert!(
        first.0.delivered.is_none_or(|times| times == 1),
        "the count of the dead letter queue: {:?}",
        first.0.delivered
    );
}

#[tokio::test]
async fn a_redriven_message_of_a_classic_queue_is_unchanged_byte_for_byte() {
    byte_for_byte("back-classic", Queue::classic("back-classic")).await;
}

#[tokio::test]
async fn a_redriven_message_of_a_quorum_queue_is_unchanged_byte_for_byte() {
    byte_for_byte("back-quorum", Queue::quorum("back-quorum")).await;
}

#[tokio::test]
async fn a_reader_hides_its_letters_until_its_end() {
    for (name, queue) in [("back-read", Queue::classic("back-read")), ("back-held", Queue::quorum("back-held"))] {
        let world = World::new(name).await;
        let mut source = world.opened(queue).await;
        dead_letter(&world, &mut source, &[b"\xff\0", b"\xff\0"]).await;
        drop(source);
        let mut reader = letters_of(name);
        reader.next().await.unwrap().unwrap();
        let redriven = Redrive::new().dry_run().run(&mut letters_of(name)).await;
        assert_eq!((redriven.put_back, redriven.failed.is_none()), (1, true), "{redriven:?}");
        while reader.next().await.unwrap().is_some() {}
        // The reader is still there, and holds no letter.
        are_ready(&world, &format!("{name}.dead"), 2).await;
        let redriven = Redrive::new().run(&mut letters_of(name)).await;
        assert_eq!((redriven.put_back, redriven.unread), (2, 0), "{redriven:?}");
        assert_eq!(reader.count().await.unwrap(), 0);
    }
}

/// Checks that the dead letters are unchanged, and sends them to their queue again.
async fn are_unchanged(world: &World, dead: &str, expected: &[&str]) {
    are_ready(world, dead, expected.len().try_into().unwrap()).await;
    let letters = all(world, dead).await;
    assert_eq!(letters.iter().map(id).collect::<Vec<_>>(), expected);
    for letter in letters {
        let headers = letter.properties.headers().clone().unwrap();
        assert_eq!(headers.inner().get("x-idempotent-deaths"), Some(&AMQPValue::LongLongInt(1)));
        assert_eq!(letter.data, b"\xff\0");
        world.send_to("", dead, &letter.data, letter.properties.clone()).await;
    }
}

#[tokio::test]
async fn a_letter_without_its_queue_stays_in_the_dead_letter_queue() {
    let world = World::new("back-gone").await;
    let mut source = world.opened(Queue::classic("back-gone")).await;
    dead_letter(&world, &mut source, &[b"\xff\0", b"\xff\0"]).await;
    drop(source);
    world.delete("back-gone").await;
    let redriven = Redrive::new().run(&mut letters_of("back-gone")).await;
    let failed = redriven.failed.unwrap();
    assert_eq!((redriven.put_back, failed.kind()), (0, SourceErrorKind::Fatal));
    assert!(failed.to_string().contains("declare it"), "{failed}");
    are_unchanged(&world, "back-gone.dead", &["m-0", "m-1"]).await;
    world.declare("back-gone").await;
    assert_eq!(Redrive::new().run(&mut letters_of("back-gone")).await.put_back, 2);
    assert_eq!((world.count("back-gone").await, world.count("back-gone.dead").await), (2, 0));
    // The dead letter queue never existed.
    let failed = letters_of("back-never").count().await.unwrap_err();
    assert_eq!(failed.kind(), SourceErrorKind::Fatal, "{failed}");
}

#[tokio::test]
async fn a_letter_that_the_broker_rejects_stays_in_the_dead_letter_queue() {
    let world = World::new("back-full").await;
    let full = || Queue::classic("back-full").argument("x-max-length", 1).argument("x-overflow", "reject-publish");
    let mut source = world.opened(full()).await;
    dead_letter(&world, &mut source, &[b"\xff\0", b"\xff\0", b"\xff\0"]).await;
    drop(source);
    let redriven = Redrive::new().run(&mut letters_of("back-full")).await;
    assert_eq!((redriven.put_back, redriven.failed.unwrap().kind()), (1, SourceErrorKind::Transient));
    are_unchanged(&world, "back-full.dead", &["m-1", "m-2"]).await;
    assert_eq!(id(&world.take("back-full").await.unwrap()), "m-0");
}

#[tokio::test]
async fn a_letter_with_a_lost_confirm_stays_in_the_dead_letter_queue() {
    let world = World::new("back-cut").await;
    let mut source = world.opened(Queue::classic("back-cut")).await;
    dead_letter(&world, &mut source, &[b"\xff\0", b"\xff\0", b"\xff\0"]).await;
    drop(source);
    let proxy = Proxy::start(&SERVER.address()).await;
    let url = format!("amqp://guest:guest@{}/%2f", proxy.address());
    let redrive = async || Redrive::new().run(&mut RabbitDeadLetters::new(&url, "back-cut").unwrap()).await;
    // The first bytes of `basic.publish`: class 60, method 40.
    proxy.fail_next_with([0, 60, 0, 40], Fault::CutBeforeSend);
    let redriven = redrive().await;
    assert_eq!((redriven.put_back, redriven.failed.unwrap().kind()), (0, SourceErrorKind::Transient));
    are_unchanged(&world, "back-cut.dead", &["m-0", "m-1", "m-2"]).await;
    // The message arrived and the confirm was lost, so the message is in both queues.
    proxy.fail_next_with([0, 60, 0, 40], Fault::CutAfterApply);
    let redriven = redrive().await;
    assert_eq!((redriven.put_back, redriven.failed.unwrap().kind()), (0, SourceErrorKind::Transient));
    are_unchanged(&world, "back-cut.dead", &["m-0", "m-1", "m-2"]).await;
    assert_eq!(redrive().await.put_back, 3);
    let back = all(&world, "back-cut").await;
    assert_eq!(back.iter().map(id).collect::<Vec<_>>(), ["m-0", "m-0", "m-1", "m-2"]);
    assert_eq!(world.count("back-cut.dead").await, 0);
}

#[tokio::test]
async fn a_discarded_letter_is_acknowledged_and_one_with_a_lost_connection_stays() {
    let world = World::new("back-off").await;
    let mut source = world.opened(Queue::classic("back-off")).await;
    dead_letter(&world, &mut source, &[b"\xff\0", b"\xff\0", b"\xff\0"]).await;
    drop(source);
    let second = Redrive::new().limit(1).only(|letter| letter.delivery.id.as_deref() == Some("m-1")).discarding();
    let mut letters = letters_of("back-off");
    let summary = second.run(&mut letters).await;
    assert_eq!((summary.discarded, summary.skipped, summary.failed.is_none()), (1, 1, true), "{summary:?}");
    assert_eq!(letters.discard().await.unwrap_err().kind(), SourceErrorKind::Fatal, "nothing was read");
    letters.close().await;
    are_unchanged(&world, "back-off.dead", &["m-0", "m-2"]).await;
    assert_eq!(world.count("back-off").await, 0);

    let proxy = Proxy::start(&SERVER.address()).await;
    let url = format!("amqp://guest:guest@{}/%2f", proxy.address());
    let mut letters = RabbitDeadLetters::new(&url, "back-off").unwrap();
    letters.next().await.unwrap().unwrap();
    // The first bytes of `basic.ack`: class 60, method 80.
    proxy.fail_next_with([0, 60, 0, 80], Fault::CutBeforeSend);
    assert_eq!(letters.discard().await.unwrap_err().kind(), SourceErrorKind::Transient);
    are_unchanged(&world, "back-off.dead", &["m-0", "m-2"]).await;
    assert!(letters.next().await.unwrap().is_some(), "over a new connection");
}

#[tokio::test]
async fn a_letter_of_another_program_is_put_back_and_reaches_no_other_queue() {
    let world = World::new("back-foreign").await;
    world.declare("back-foreign.other").await;
    let mut source = world.opened(Queue::classic("back-foreign")).await;
    let mut headers = FieldTable::default();
    let other = AMQPValue::FieldArray(vec![AMQPValue::LongString("back-foreign.other".into())].into());
    headers.insert("CC".into(), other);
    let properties = named("m").with_headers(headers).with_user_id("guest".into());
    world.send_to("", "back-foreign.dead", b"b", properties).await;
    assert_eq!(all(&world, "back-foreign.other").await.len(), 1, "the broker routes by CC");
    let mut letters = letters_of("back-foreign");
    assert!(letters.next().await.unwrap().unwrap().letter.is_none());
    assert!(letters.put_back().await.unwrap());
    assert_eq!(letters.put_back().await.unwrap_err().kind(), SourceErrorKind::Fatal, "twice");
    assert!(letters.next().await.unwrap().is_none());
    let back = source.next().await;
    assert_eq!(back.0.headers.first("CC"), Some(&b"back-foreign.other"[..]));
    assert_eq!((back.0.deaths, world.count("back-foreign.other").await), (0, 0));
}

#[tokio::test]
async fn a_redriven_message_that_is_dead_lettered_again_has_two_deaths() {
    let world = World::new("back-again").await;
    let mut source = world.opened(Queue::classic("back-again")).await;
    dead_letter(&world, &mut source, &[b"\xff\0"]).await;
    assert_eq!(Redrive::new().run(&mut letters_of("back-again")).await.put_back, 1);
    let back = source.next().await;
    let mut letter = DeadLetter::because("again", Timestamp(17));
    letter.deaths = back.0.deaths + 1;
    source.settle(&back, Settlement::DeadLetter(letter)).await.unwrap();
    let mut letters = letters_of("back-again");
    let StoredLetter { delivery, letter, .. } = letters.next().await.unwrap().unwrap();
    assert_eq!((&delivery.body[..], delivery.headers == back.0.headers), (&b"\xff\0"[..], true));
    let letter = letter.unwrap();
    assert_eq!((letter.deaths, &*letter.reason), (2, "again"));
}

#[tokio::test]
async fn a_password_is_not_shown() {
    let letters = RabbitDeadLetters::new("amqp://orders:s3cret@127.0.0.1:1/%2f", "orders").unwrap();
    assert!(!format!("{letters:?}").contains("s3cret"));
    let mut letters = letters;
    let failed = letters.count().await.unwrap_err();
    assert_eq!(failed.kind(), SourceErrorKind::Transient);
    assert!(!format!("{failed} {failed:?}").contains("s3cret"));
}

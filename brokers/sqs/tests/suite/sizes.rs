//! Messages and dead letters near the largest size that their queue accepts.
use idempotent_core::Timestamp;
use idempotent_mq::{
    DeadLetter, OutboundMessage, Publish, PublishErrorKind, Redrive, Settlement, Source, SourceErrorKind,
};
use idempotent_sqs::aws_sdk_sqs::types::{Message, MessageAttributeValue, QueueAttributeName};
use idempotent_sqs::{SqsPublisher, SqsSource};

use crate::world::{World, one, settle};

/// The largest message of the queues.
const MOST: usize = 2_048;

fn text(value: String) -> MessageAttributeValue {
    MessageAttributeValue::builder().data_type("String").string_value(value).build().unwrap()
}

fn because(reason: &str) -> Settlement {
    Settlement::DeadLetter(DeadLetter::because(reason.to_owned(), Timestamp(9)))
}

/// Returns the size as the documentation of SQS counts it: the body, and the names, types and values of the attributes.
fn size(message: &Message) -> usize {
    let attributes = message.message_attributes().into_iter().flatten();
    let sizes =
        attributes.map(|(name, value)| name.len() + value.data_type().len() + value.string_value().unwrap().len());
    message.body().unwrap().len() + sizes.sum::<usize>()
}

fn own(message: &Message) -> Option<&str> {
    message.message_attributes()?.get("idempotent")?.string_value()
}

impl World {
    async fn limited(most: usize, most_dead: usize) -> (Self, SqsSource) {
        let world = Self::new().await;
        for (name, most) in [(world.name.clone(), most), (world.dead(), most_dead)] {
            let set = world.client.set_queue_attributes().queue_url(world.url(&name).await);
            set.attributes(QueueAttributeName::MaximumMessageSize, most.to_string()).send().await.unwrap();
        }
        let source = world.source().await;
        (world, source)
    }

    async fn bury_sized(&self, source: &mut SqsSource, body: usize, reason: &str) {
        self.send(&"x".repeat(body)).await;
        let held = one(source).await;
        settle(&source.settler(), &held, because(reason)).await;
    }

    /// Dead-letters a message, and removes and returns its letter.
    async fn letter(&self, source: &mut SqsSource, body: usize, reason: &str) -> Message {
        self.bury_sized(source, body, reason).await;
        let url = self.url(&self.dead()).await;
        let receive = self.client.receive_message().queue_url(&url).message_attribute_names("All");
        let letter = receive.send().await.unwrap().messages.unwrap().pop().unwrap();
        self.client
            .delete_message()
            .queue_url(url)
            .receipt_handle(letter.receipt_handle().unwrap())
            .send()
            .await
            .unwrap();
        letter
    }
}

/// The emulator counts the body only, and SQS the attributes, too.
#[tokio::test]
async fn a_published_message_of_the_size_limit_arrives_and_one_byte_more_is_refused_by_name() {
    // The size of a binary body grows by a third.
    let binary = MOST / 4 * 3;
    for (most, byte, sizes) in [
        (MOST, b'x', [MOST - 1, MOST, MOST + 1]),
        (MOST, 0, [binary - 1, binary, binary + 1]),
        (1 << 20, b'x', [(1 << 20) - 1, 1 << 20, (1 << 20) + 1]),
    ] {
        let (world, mut source) = World::limited(most, most).await;
        let publisher = SqsPublisher::new(world.client.clone());
        let publish = async |size: usize| {
            let message = OutboundMessage::new(&*world.name, "m", vec![byte; size]);
            publisher.publish(&[message]).await.pop().unwrap()
        };
        for size in &sizes[..2] {
            publish(*size).await.unwrap();
            let held = one(&mut source).await;
            assert!(held.0.body == vec![byte; *size], "a body of {size} bytes is another one");
            settle(&source.settler(), &held, Settlement::Ack).await;
        }
        let error = publish(sizes[2]).await.unwrap_err();
        assert_eq!(error.kind(), PublishErrorKind::Refused, "{error}");
        let limit = format!("than {most} bytes");
        for part in [&*world.name, &limit, "send a shorter message"] {
            assert!(error.to_string().contains(part), "{part} is not in: {error}");
        }
        assert_eq!(world.open().await, 0, "nothing of the refused message is stored");
    }
}

#[tokio::test]
async fn a_letter_that_is_too_large_loses_the_data_of_the_consumer_and_keeps_its_message() {
    let (world, mut source) = World::limited(MOST, MOST).await;
    let whole = MOST - (size(&world.letter(&mut source, 100, "no stock").await) - 100);
    for (body, is_whole) in [(whole - 1, true), (whole, true), (whole + 1, false), (MOST - 1, false), (MOST, false)] {
        let letter = world.letter(&mut source, body, "no stock").await;
        assert_eq!((own(&letter).is_some(), letter.body().unwrap().len()), (is_whole, body));
        assert!(size(&letter) <= MOST, "{body}");
    }
}

#[tokio::test]
async fn a_message_that_is_put_back_loses_the_data_of_the_adapter_only_where_it_has_no_room() {
    let (world, mut source) = World::limited(MOST, MOST).await;
    // The letters of these messages have no room for the data of the consumer either.
    let (first, mut whole) = (1_900, MOST);
    for place in 0..4 {
        let body = [first, whole, whole + 1, MOST][place];
        world.bury_sized(&mut source, body, "no stock").await;
        assert_eq!(Redrive::new().run(&mut world.letters()).await.put_back, 1);
        let copy = world.peek(&world.name).await.pop().unwrap();
        assert_eq!((own(&copy).is_some(), copy.body().unwrap().len()), (place < 2, body));
        if place == 0 {
            whole = MOST - (size(&copy) - first);
        }
        let held = one(&mut source).await;
        settle(&source.settler(), &held, Settlement::Ack).await;
    }
}

#[tokio::test]
async fn a_letter_whose_reason_is_too_large_keeps_its_beginning() {
    let (world, mut source) = World::limited(MOST, MOST).await;
    let letter = world.letter(&mut source, 100, &"ö".repeat(5_000)).await;
    assert!(own(&letter).unwrap().contains("öö… (shortened)") && size(&letter) < MOST);
}

#[tokio::test]
async fn a_letter_with_ten_attributes_keeps_them_where_one_has_no_room() {
    let (world, mut source) = World::limited(MOST, MOST).await;
    let mut send = world.client.send_message().queue_url(world.url(&world.name).await).message_body("x");
    for number in 0..10 {
        send = send.message_attributes(format!("n{number}"), text("v".repeat(190)));
    }
    send.send().await.unwrap();
    let held = one(&mut source).await;
    settle(&source.settler(), &held, because("no stock")).await;
    let letter = world.peek(&world.dead()).await.pop().unwrap();
    assert_eq!((letter.message_attributes().unwrap().len(), own(&letter)), (10, None));
}

#[tokio::test]
async fn a_message_that_the_queue_of_the_dead_letters_cannot_take_is_refused_and_stays() {
    let (world, mut source) = World::limited(MOST, 1_024).await;
    for (body, is_refused) in [(1_023, false), (1_024, false), (1_025, true)] {
        world.send(&"x".repeat(body)).await;
        let held = one(&mut source).await;
        let settled = source.settler().settle(&held.0, &held.1, &because("no stock")).await;
        assert_eq!(settled.as_ref().err().map(|error| error.kind()), is_refused.then_some(SourceErrorKind::Refused));
        if let Err(error) = settled {
            assert!(error.to_string().contains("raise `MaximumMessageSize` of the queue"), "{error}");
        }
    }
    assert_eq!(world.open().await, 1);
}

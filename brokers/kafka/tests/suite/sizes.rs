//! Messages and their copies near the largest size that a topic accepts.
use idempotent_kafka::{KafkaDeadLetters, KafkaPublisher, KafkaSource};
use idempotent_mq::{
    DeadLetters, OutboundMessage, Publish, PublishErrorKind, Redrive, Settlement, Source, SourceErrorKind,
};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::messages::{because, record};
use crate::world::{GROUP, World, ms, one, receive, retry, settle, simulated};

/// The largest record that the source and the publisher produce.
const MOST: usize = 20_000;

/// A broker with a source that produces records up to the limit.
async fn limited(retries: bool) -> (World, KafkaSource) {
    let world = World::new(1).await;
    let mut builder = KafkaSource::builder(world.limited_url(), "orders", GROUP).declare(1);
    if retries {
        builder = builder.retry_topic("again");
    }
    let source = builder.connect().await.unwrap();
    (world, source)
}

impl World {
    fn limited_url(&self) -> String {
        format!("{}?message.max.bytes={MOST}", self.url())
    }

    /// Sends a body of this size with a header.
    async fn sized(&self, size: usize) {
        let headers = OwnedHeaders::new().insert(Header { key: "trace", value: Some(&[b'h'; 500]) });
        self.send_to(0, Some(b"k"), Some(&vec![b'x'; size]), headers).await;
    }
}

/// Returns the size of a record as the client counts it: the record key, the value, the headers with their lengths, and 36 bytes.
fn size(record: &OwnedMessage) -> usize {
    let length = |part: usize| match part {
        ..64 => 1,
        64..8192 => 2,
        _ => 3,
    };
    let header = |header: Header<'_, &[u8]>| {
        let value = header.value.unwrap_or_default().len();
        header.key.len() + value + length(header.key.len()) + length(value)
    };
    let headers: usize = record.headers().unwrap().iter().map(header).sum();
    record.key().unwrap_or_default().len() + record.payload().unwrap_or_default().len() + headers + 36
}

fn omitted(record: &OwnedMessage) -> Option<String> {
    let omitted = record.headers().unwrap().iter().find(|header| header.key == "idempotent-omitted")?;
    Some(String::from_utf8(omitted.value.unwrap().to_vec()).unwrap())
}

#[tokio::test]
async fn a_published_message_of_the_size_limit_arrives_and_one_byte_more_is_refused_by_name() {
    let (world, mut source) = limited(false).await;
    let publisher = KafkaPublisher::new(world.limited_url());
    let mut arrived = 0;
    let mut publish = async |body: usize| {
        let message = OutboundMessage::new("orders", "m", vec![b'x'; body]).aggregate("a").header("trace", [b'h'; 500]);
        publisher.publish(&[message]).await.pop().unwrap()?;
        let held = one(&mut source).await;
        assert_eq!(held.0.body.len(), body);
        settle(&source, &held, Settlement::Ack).await;
        arrived += 1;
        Ok::<_, idempotent_mq::PublishError>(size(&record(&world, "orders", arrived - 1)))
    };
    let largest = MOST - (publish(1_000).await.unwrap() - 1_000);
    for (body, expected) in [(largest - 1, MOST - 1), (largest, MOST)] {
        assert_eq!(publish(body).await.unwrap(), expected);
    }
    let error = publish(largest + 1).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Refused, "{error}");
    for part in ["`orders`", "`message.max.bytes` of the client", "`max.message.bytes` of the topic", "a shorter body"]
    {
        assert!(error.to_string().contains(part), "{part} is not in: {error}");
    }
    // Nothing of the refused message is stored before the next one.
    publish(1).await.unwrap();
    let (cluster, url) = simulated();
    cluster.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    let message = OutboundMessage::new("orders", "m", "larger than the topic permits");
    let error = KafkaPublisher::new(&*url).publish(&[message]).await.pop().unwrap().unwrap_err();
    assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains("of the topic"), "{error}");
}

#[tokio::test]
async fn a_letter_that_is_too_large_loses_its_headers_and_then_its_body_but_no_message() {
    let (world, mut source) = limited(false).await;
    let mut offset = 0;
    let mut bury = async |body: usize| {
        world.sized(body).await;
        let held = one(&mut source).await;
        settle(&source, &held, because("no stock")).await;
        offset += 1;
        record(&world, "orders-dead", offset - 1)
    };
    let whole = MOST - (size(&bury(1_000).await) - 1_000);
    for (body, expected) in [(whole - 1, None), (whole, None), (whole + 1, Some("headers"))] {
        let letter = bury(body).await;
        assert_eq!((omitted(&letter).as_deref(), letter.payload().unwrap().len()), (expected, body));
        assert!(size(&letter) <= MOST);
    }
    let smaller = bury(whole + 1).await;
    let without = MOST - (size(&smaller) - (whole + 1));
    let reference = "headers, record key and body";
    for (body, expected) in
        [(without - 1, "headers"), (without, "headers"), (without + 1, reference), (MOST, reference)]
    {
        assert_eq!(omitted(&bury(body).await).as_deref(), Some(expected), "{body}");
    }
    source.close().await;
    let mut letters = KafkaDeadLetters::new(world.url(), "orders");
    let total = letters.count().await.unwrap();
    let mut reasons = Vec::new();
    while let Some(letter) = letters.next().await.unwrap() {
        reasons.push(letter.letter.unwrap().reason);
    }
    assert_eq!(reasons[0], "no stock");
    assert!(reasons[3].starts_with("no stock; the letter lacks the headers of its message"), "{}", reasons[3]);
    assert_eq!(Redrive::new().run(&mut letters).await.put_back, total);
    let last = record(&world, "orders", 2 * i64::try_from(total).unwrap() - 1);
    assert_eq!((last.key(), last.payload().unwrap().len()), (Some(&b"k"[..]), MOST), "the body comes from the log");
    assert_eq!(last.headers().unwrap().get(0).key, "trace");
}

#[tokio::test]
async fn a_retry_that_is_too_large_is_refused_and_its_message_stays() {
    let (world, mut source) = limited(true).await;
    world.sized(1_000).await;
    let held = one(&mut source).await;
    settle(&source, &held, retry(ms(1))).await;
    let largest = MOST - (size(&record(&world, "again", 0)) - 1_000);
    let again = one(&mut source).await;
    settle(&source, &again, Settlement::Ack).await;
    for (body, is_accepted) in [(largest - 1, true), (largest, true), (largest + 1, false)] {
        world.sized(body).await;
        let held = one(&mut source).await;
        let settled = source.settler().settle(&held.0, &held.1, &retry(ms(1))).await;
        assert_eq!(settled.map_err(|error| error.kind()).is_ok(), is_accepted, "{body}");
        let held = if is_accepted { one(&mut source).await } else { held };
        settle(&source, &held, Settlement::Ack).await;
    }
    world.sized(MOST).await;
    let held = one(&mut source).await;
    let error = source.settler().settle(&held.0, &held.1, &retry(ms(1))).await.unwrap_err();
    assert!(error.kind() == SourceErrorKind::Refused && error.to_string().contains("message.max.bytes"), "{error}");
    settle(&source, &held, because("no stock")).await;
}

#[tokio::test]
async fn a_letter_that_the_broker_refuses_loses_a_part_only_because_of_its_size() {
    use RDKafkaRespErr::{RD_KAFKA_RESP_ERR_INVALID_RECORD as OTHER, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE as SIZE};
    let (cluster, url) = simulated();
    let mut source = KafkaSource::connect(&*url, "orders", GROUP).await.unwrap();
    let publisher = KafkaPublisher::new(&*url);
    let long = "m".repeat(1_001);
    for (id, errors, is_settled) in [
        ("headers", &[SIZE][..], true),
        ("all", &[SIZE, SIZE], true),
        (&*long, &[SIZE, SIZE], true),
        ("none", &[OTHER], false),
    ] {
        let message = OutboundMessage::new("orders", id, "body").header("trace", "1");
        publisher.publish(&[message]).await.pop().unwrap().unwrap();
        let held = receive(&mut source, 1).await.pop().unwrap();
        cluster.request_errors(RDKafkaApiKey::Produce, errors);
        let settled = source.settler().settle(&held.0, &held.1, &because("no stock")).await;
        assert_eq!(settled.is_ok(), is_settled, "{settled:?}");
        if !is_settled {
            settle(&source, &held, because("no stock")).await;
        }
    }
    source.close().await;
    let mut letters = KafkaDeadLetters::new(&*url, "orders");
    for (id, headers, omitted) in [
        ("headers", 0, "lacks the headers of"),
        ("all", 0, "lacks the headers, record key and body"),
        // The place stands for an id that the letter lacks.
        ("orders-dead/0/2", 0, "lacks the headers, record key and body"),
        ("none", 1, ""),
    ] {
        let letter = letters.next().await.unwrap().unwrap();
        let delivery = letter.delivery;
        assert!(delivery.id.as_deref().unwrap().starts_with(id) && delivery.headers.len() == headers, "{delivery:?}");
        let reason = letter.letter.unwrap().reason;
        assert!(reason.contains(omitted) && (omitted.is_empty() == (reason == "no stock")), "{reason}");
    }
}

//! Messages and their copies near the largest size that the server or a stream accepts.
use async_nats::HeaderMap;
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idempotent_core::Timestamp;
use idempotent_harness::servers::NatsServer;
use idempotent_mq::{
    DeadLetter, DeadLetters, OutboundMessage, PublishErrorKind, Redrive, Settlement, Source, SourceErrorKind,
    StoredLetter,
};
use idempotent_nats::{JetStreamDeadLetters, JetStreamPublisher};

use crate::publisher::publish;
use crate::world::{World, one, settle};

/// The largest message that the server of these tests accepts.
const LIMIT: usize = 16 * 1024;
/// The most bytes of headers that a stream accepts.
const HEADERS: usize = 65_535;

async fn limited() -> World {
    World::on(NatsServer::with(&format!("max_payload: {LIMIT}"))).await
}

/// A message as a stream stores it.
pub(crate) struct Stored {
    headers: HeaderMap,
    /// The length of all headers in bytes.
    length: usize,
    body: Vec<u8>,
}

impl Stored {
    fn text(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.as_str())
    }

    fn reason(&self) -> String {
        let reason = base64::engine::general_purpose::STANDARD_NO_PAD.decode(self.text("Idempotent-Reason").unwrap());
        String::from_utf8(reason.unwrap()).unwrap()
    }
}

impl World {
    /// Sends a message with this id and body, dead-letters it, and returns the letter.
    pub(crate) async fn buried(&self, id: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Stored {
        let mut source = self.source().await;
        let mut map = HeaderMap::new();
        map.insert("Nats-Msg-Id", id);
        headers.iter().for_each(|(name, value)| map.insert(*name, *value));
        let sent = self.client.publish_with_headers("orders.new", map, body.into()).await.unwrap();
        sent.await.unwrap();
        let held = one(&mut source).await;
        let letter = DeadLetter::because("no stock", Timestamp(9));
        settle(&source.settler(), &held, Settlement::DeadLetter(letter)).await;
        source.close().await;
        self.newest("ORDERS-dead").await
    }

    /// Returns the newest message of a stream.
    async fn newest(&self, name: &str) -> Stored {
        let stream = self.client.get_stream(name).await.unwrap();
        let last = stream.get_info().await.unwrap().state.last_sequence;
        let request = serde_json::json!({ "seq": last });
        let raw: serde_json::Value = self.client.request(format!("STREAM.MSG.GET.{name}"), &request).await.unwrap();
        let bytes = |name: &str| STANDARD.decode(raw["message"][name].as_str().unwrap_or_default()).unwrap();
        let headers = stream.get_raw_message(last).await.unwrap().headers;
        Stored { headers, length: bytes("hdrs").len(), body: bytes("data") }
    }
}

#[tokio::test]
async fn a_published_message_of_each_size_limit_is_stored_and_one_byte_more_is_refused_by_name() {
    const STREAM: i32 = 8 * 1024;
    let stream_limit = usize::try_from(STREAM).unwrap();
    for (limit, remedy) in [
        (LIMIT, "raise `max_payload` of the server, or send a shorter body"),
        (stream_limit, "raise `max_msg_size` of the stream, or send a shorter body"),
        (HEADERS, "send shorter headers"),
    ] {
        let world = if limit == HEADERS { World::new().await } else { limited().await };
        world.source().await;
        if limit == stream_limit {
            let mut config = world.client.get_stream("ORDERS").await.unwrap().cached_info().config.clone();
            config.max_message_size = STREAM;
            world.client.update_stream(config).await.unwrap();
        }
        let publisher = JetStreamPublisher::new(world.server.url());
        let mut number = 0;
        // Returns the size of the whole message.
        let mut sized = async |length: usize| {
            number += 1;
            let (header, body) = if limit == HEADERS { (length, 0) } else { (0, length) };
            let message = OutboundMessage::new("orders.new", format!("m-{number}"), vec![b'x'; body]);
            publish(&publisher, message.header("trace", "t".repeat(header))).await?;
            let Stored { length, body, .. } = world.newest("ORDERS").await;
            Ok::<_, idempotent_mq::PublishError>(length + body.len())
        };
        let room = limit - sized(0).await.unwrap();
        for (length, expected) in [(room - 1, limit - 1), (room, limit)] {
            assert_eq!(sized(length).await.unwrap(), expected);
        }
        let error = sized(room + 1).await.unwrap_err();
        assert_eq!(error.kind(), PublishErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("`orders.new`") && error.to_string().contains(remedy), "{error}");
        sized(1).await.unwrap();
        assert_eq!(world.open().await.0, 4, "nothing of the refused message is stored");
    }
}

#[tokio::test]
async fn a_redriven_message_of_the_size_limit_is_put_back_and_one_byte_more_stays_among_the_dead_letters() {
    let world = limited().await;
    let redriven = async |number: u32, body: usize| {
        world.buried(&format!("m-{number}"), &[], vec![b'x'; body]).await;
        let mut letters = JetStreamDeadLetters::new(world.server.url(), "ORDERS");
        let StoredLetter { delivery, .. } = letters.next().await.unwrap().unwrap();
        assert_eq!(delivery.body.len(), body);
        assert!(letters.put_back().await?);
        let mut source = world.source().await;
        let held = one(&mut source).await;
        assert_eq!((held.0.body.len(), held.0.id.as_deref()), (body, Some(&*format!("m-{number}"))));
        settle(&source.settler(), &held, Settlement::Ack).await;
        source.close().await;
        let Stored { length, body, .. } = world.newest("ORDERS").await;
        Ok::<_, idempotent_mq::SourceError>(length + body.len())
    };
    let room = LIMIT - redriven(1, 0).await.unwrap();
    for (number, body, expected) in [(2, room - 1, LIMIT - 1), (3, room, LIMIT)] {
        assert_eq!(redriven(number, body).await.unwrap(), expected);
    }
    let error = redriven(4, room + 1).await.unwrap_err();
    assert!(error.kind() == SourceErrorKind::Refused && error.to_string().contains("raise `max_payload`"), "{error}");
    let mut letters = JetStreamDeadLetters::new(world.server.url(), "ORDERS");
    assert_eq!((letters.count().await.unwrap(), world.open().await), (1, (0, 0)));
    assert_eq!(letters.next().await.unwrap().unwrap().delivery.body.len(), room + 1);
}

#[tokio::test]
async fn a_letter_of_the_size_limit_is_whole_and_one_byte_more_makes_it_refer_to_its_message() {
    let world = limited().await;
    let small = world.buried("m-1", &[], b"body".to_vec()).await;
    let room = LIMIT - small.length;
    for (number, length) in [(2, room - 1), (3, room)] {
        let whole = world.buried(&format!("m-{number}"), &[], vec![b'x'; length]).await;
        assert_eq!((whole.body.len(), whole.reason().as_str()), (length, "no stock"));
        assert_eq!(whole.text("Idempotent-Original"), None);
    }
    let large = world.buried("m-4", &[], vec![b'x'; room + 1]).await;
    assert!(large.body.is_empty());
    let original = large.text("Idempotent-Original").unwrap();
    assert!(original.starts_with("ORDERS/4-"), "{original}");
    assert!(
        large.reason().contains(&format!("no stock; a copy exceeds {LIMIT} bytes, or 65535 of headers")),
        "{}",
        large.reason()
    );
    assert!(large.reason().ends_with(&format!("refers to its message {original}")), "{}", large.reason());
    assert_eq!(world.open().await, (0, 0));
    let stream = world.client.get_stream("ORDERS").await.unwrap();
    assert_eq!(stream.get_raw_message(4).await.unwrap().payload.len(), room + 1, "the original is there");
}

#[tokio::test]
async fn a_letter_with_the_most_headers_is_whole_and_one_byte_more_makes_it_refer_to_its_message() {
    let world = World::new().await;
    let small = world.buried("m-1", &[("trace", "")], b"body".to_vec()).await;
    let room = HEADERS - small.length;
    for (number, length) in [(2, room - 1), (3, room), (4, room + 1)] {
        let letter = world.buried(&format!("m-{number}"), &[("trace", &"t".repeat(length))], b"body".to_vec()).await;
        let is_whole = letter.text("Idempotent-Original").is_none();
        assert_eq!((is_whole, letter.body.is_empty(), letter.length <= HEADERS), (length <= room, !is_whole, true));
    }
    assert_eq!(world.open().await, (0, 0));
}

#[tokio::test]
async fn a_letter_that_refers_to_its_message_is_listed_and_put_back_with_body_and_headers() {
    let world = limited().await;
    let trace = "t".repeat(400);
    let body = vec![b'x'; LIMIT - 600];
    let letter = world.buried("m-1", &[("trace", &trace)], body.clone()).await;
    assert!(letter.body.is_empty() && letter.text("trace").is_none());
    let mut letters = JetStreamDeadLetters::new(world.server.url(), "ORDERS");
    let StoredLetter { delivery, .. } = letters.next().await.unwrap().unwrap();
    assert_eq!((&delivery.body, delivery.headers.first("trace")), (&body, Some(trace.as_bytes())));
    assert!(letters.put_back().await.unwrap());
    let (delivery, _) = one(&mut world.source().await).await;
    assert_eq!((&delivery.body, delivery.headers.first("trace")), (&body, Some(trace.as_bytes())));
    assert_eq!((delivery.id.as_deref(), delivery.deaths), (Some("m-1"), 1));
}

#[tokio::test]
async fn a_letter_whose_message_is_gone_or_too_large_to_be_put_back_is_passed_by() {
    let world = limited().await;
    world.buried("m-1", &[], vec![b'x'; LIMIT - 100]).await;
    world.buried("m-2", &[], vec![b'y'; LIMIT - 100]).await;
    world.buried("m-3", &[], b"small".to_vec()).await;
    assert!(world.client.get_stream("ORDERS").await.unwrap().delete_message(1).await.unwrap());
    let summary = Redrive::new().run(&mut JetStreamDeadLetters::new(world.server.url(), "ORDERS")).await;
    assert!(summary.failed.is_none() && (summary.put_back, summary.passed_by) == (1, 2), "{summary:?}");
    assert_eq!(world.open().await.0, 1);
}

#[tokio::test]
async fn a_letter_that_is_too_large_keeps_the_body_if_the_stream_removes_its_message() {
    let world = limited().await;
    let config = Config {
        name: "ORDERS".into(),
        subjects: vec!["orders.>".into()],
        retention: RetentionPolicy::WorkQueue,
        ..Config::default()
    };
    world.client.create_stream(config).await.unwrap();
    let trace = "t".repeat(550);
    let headers = [("trace", trace.as_str())];
    let large = world.buried("m-1", &headers, vec![b'x'; LIMIT - 600]).await;
    assert_eq!((large.body.len(), large.text("trace"), large.text("Idempotent-Original")), (LIMIT - 600, None, None));
    assert!(large.reason().contains("lacks the headers of its message ORDERS/1-"), "{}", large.reason());
    assert_eq!((large.text("Idempotent-Id"), large.text("Idempotent-Subject")), (Some("m-1"), Some("orders.new")));
    assert_eq!(world.open().await, (0, 0));
}

//! Dead letters that are larger than the server accepts.
use async_nats::HeaderMap;
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idempotent_core::Timestamp;
use idempotent_harness::servers::NatsServer;
use idempotent_mq::{DeadLetter, DeadLetters, Redrive, Settlement, Source, StoredLetter};
use idempotent_nats::JetStreamDeadLetters;

use crate::world::{World, one, settle};

/// The largest message that the server of these tests accepts.
const LIMIT: usize = 16 * 1024;
/// The most bytes of headers that a stream accepts.
const HEADERS: usize = 65_535;

async fn limited() -> World {
    World::on(NatsServer::with(&format!("max_payload: {LIMIT}"))).await
}

/// A letter as the stream of the dead letters stores it.
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

        let dead = self.client.get_stream("ORDERS-dead").await.unwrap();
        let raw: serde_json::Value = {
            let last = dead.get_info().await.unwrap().state.last_sequence;
            let request = serde_json::json!({ "seq": last });
            self.client.request("STREAM.MSG.GET.ORDERS-dead", &request).await.unwrap()
        };
        let bytes = |name: &str| STANDARD.decode(raw["message"][name].as_str().unwrap_or_default()).unwrap();
        let headers = dead.direct_get(raw["message"]["seq"].as_u64().unwrap()).await.unwrap().headers;
        Stored { headers, length: bytes("hdrs").len(), body: bytes("data") }
    }
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

//! The conformance laws of broker adapters, on a real Redis server.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::{RedisServer, Value};
use idempotent_mq::{DeadLetter, DeadLetters};
use idempotent_redis_streams::{StartPosition, StreamsDeadLetters, StreamsSource, TrimPolicy};
use idempotent_testkit::broker::{Broker, Limits, Message, Outage};
use idempotent_testkit::broker_conformance;

/// Long enough that an entry without keep-alive is not taken over on a busy machine.
const MIN_IDLE: Duration = Duration::from_secs(3);

/// A stream on a server of its own.
struct Streams {
    server: RedisServer,
    between: Proxy,
    keep: TrimPolicy,
}

impl Streams {
    async fn new(keep: TrimPolicy) -> Self {
        let server = RedisServer::start();
        let between = Proxy::start(&server.address()).await;
        let streams = Self { server, between, keep };
        streams.source().await;
        streams
    }

    /// Returns the value of a named field.
    fn info(&self, of: &[&str], name: &str) -> Value {
        let told = self.server.command(of);
        let flat = if of[1] == "GROUPS" { &told.items()[0] } else { &told };
        let mut pairs = flat.items().chunks(2);
        pairs.find(|pair| pair[0].text() == name).unwrap_or_else(|| panic!("no `{name}`: {told:?}"))[1].clone()
    }
}

#[async_trait]
impl Broker for Streams {
    type Source = StreamsSource;

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        (limits.held_for, limits.stays_held) = (Some(MIN_IDLE), true);
        // The server's clock has a resolution of one ms.
        limits.early = Duration::from_millis(2);
        limits
    }

    async fn source(&self) -> StreamsSource {
        let url = self.between.url();
        let builder = StreamsSource::builder(url, "orders", "billing").declare(StartPosition::Beginning).id_field("id");
        builder.min_idle(MIN_IDLE).keep(self.keep).connect().await.unwrap()
    }

    async fn publish(&self, message: Message) {
        let mut entry: Vec<&[u8]> = vec![b"XADD", b"orders", b"*", b"id", message.id.as_bytes()];
        entry.extend([&b"body"[..], &message.body]);
        entry.extend(message.headers.iter().flat_map(|(name, value)| [name.as_bytes(), value]));
        assert!(!self.server.command(&entry).is_error());
    }

    /// Publishes an entry without body and id, and with a name that is not UTF-8.
    async fn publish_unreadable(&self) {
        let entry: [&[u8]; 5] = [b"XADD", b"orders", b"*", b"\xff\xfe", b"\xff"];
        assert!(!self.server.command(&entry).is_error());
    }

    async fn publish_forged(&self) {
        let own = ["id", "forged", "body", "1", "idempotent-attempts", "70", "idempotent-reason", "forged"];
        let places = ["idempotent-id", "key:9", "idempotent-entry", "1-1", "idempotent-last-at", "7"];
        let times = ["idempotent-first-at", "1", "idempotent-deaths", "1"];
        assert!(!self.server.command(&[&["XADD", "orders", "*"], &own[..], &places, &times].concat()).is_error());
    }

    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)> {
        let entries = self.server.command(&["XRANGE", "orders:dead", "-", "+"]);
        let fields = |entry: &Value| entry.items()[1].items().iter().map(bytes).collect::<Vec<_>>();
        entries.items().iter().map(|entry| letter(&fields(entry))).collect()
    }

    fn letters(&self) -> Box<dyn DeadLetters> {
        Box::new(StreamsDeadLetters::new(self.server.url(), "orders").unwrap())
    }

    async fn is_empty(&self) -> bool {
        let read = self.info(&["XINFO", "GROUPS", "orders"], "last-delivered-id");
        let there = self.info(&["XINFO", "STREAM", "orders"], "last-generated-id");
        let pending = self.server.command(&["XPENDING", "orders", "billing"]);
        read == there && pending.items()[0].integer() == Some(0)
    }

    async fn cut(&self) {
        self.between.cut_all();
    }

    async fn begin_outage(&self, outage: Outage) {
        self.between.begin_outage(outage == Outage::Silent);
    }

    async fn end_outage(&self) {
        self.between.end_outage();
    }
}

fn letter(fields: &[Vec<u8>]) -> (Message, DeadLetter) {
    let (mut message, mut letter) = (Message::default(), DeadLetter::because("", Timestamp(0)));
    for field in fields.chunks(2) {
        let (name, value) = (String::from_utf8_lossy(&field[0]).into_owned(), &field[1]);
        let number = || text(value).parse::<u64>().unwrap();
        match name.strip_prefix("idempotent-").unwrap_or(&name) {
            "id" if name == "id" => message.id = text(value),
            "body" => message.body.clone_from(value),
            "reason" => letter.reason = text(value).into(),
            "id" => letter.id = Some(text(value)),
            "attempts" => letter.attempts = number().try_into().unwrap(),
            "deaths" => letter.deaths = number().try_into().unwrap(),
            "first-at" => letter.first_at = Timestamp(number()),
            "last-at" => letter.last_at = Timestamp(number()),
            "entry" => {}
            _ => message.headers.push(name, value.clone()),
        }
    }
    (message, letter)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Bytes(bytes) => bytes.clone(),
        other => panic!("no bytes: {other:?}"),
    }
}

broker_conformance!(a_stream_that_keeps_everything_keeps_the_laws, Streams::new(TrimPolicy::Everything));
broker_conformance!(a_stream_that_deletes_what_is_settled_keeps_the_laws, Streams::new(TrimPolicy::Unacknowledged));

//! A stream on the server that all tests of this binary share, with a plain client to inspect the stream.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use idempotent_core::Timestamp;
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::NatsServer;
use idempotent_mq::{DeadLetter, DeadLetters};
use idempotent_nats::{JetStreamDeadLetters, JetStreamSource};
use idempotent_testkit::broker::{Broker, Limits, Message, Outage};

static SERVER: LazyLock<NatsServer> = LazyLock::new(|| NatsServer::with("max_payload: 8MB"));
static STREAMS: AtomicU32 = AtomicU32::new(0);

/// Long enough that a message without keep-alive is not redelivered on a busy machine.
const ACK_WAIT: Duration = Duration::from_secs(3);
const CONSUMER: &str = "billing";

pub(crate) struct JetStream {
    name: String,
    between: Proxy,
    client: Context,
}

impl JetStream {
    /// Creates a new stream with a consumer.
    pub(crate) async fn new() -> Self {
        // Starting the server blocks the thread.
        let address = tokio::task::spawn_blocking(|| SERVER.address()).await.unwrap();
        let (between, name) = (Proxy::start(&address).await, format!("LAWS-{}", STREAMS.fetch_add(1, SeqCst)));
        let client = jetstream::new(async_nats::connect(&address).await.unwrap());
        let stream = Self { name, between, client };
        stream.source().await;
        stream
    }

    fn subject(&self) -> String {
        format!("{}.new", self.name)
    }

    async fn send(&self, headers: HeaderMap, body: Vec<u8>) {
        let sent = self.client.publish_with_headers(self.subject(), headers, body.into()).await;
        sent.unwrap().await.unwrap();
    }
}

#[async_trait]
impl Broker for JetStream {
    type Source = JetStreamSource;

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        (limits.held_for, limits.stays_held) = (Some(ACK_WAIT), true);
        limits
    }

    async fn source(&self) -> JetStreamSource {
        let url = format!("nats://{}", self.between.address());
        let builder = JetStreamSource::builder(url, &*self.name, CONSUMER).declare([format!("{}.>", self.name)]);
        builder.ack_wait(ACK_WAIT).connect().await.unwrap()
    }

    /// Publishes without `Nats-Msg-Id`, because the server drops the copies that some laws send.
    async fn publish(&self, message: Message) {
        let mut headers = HeaderMap::new();
        headers.insert("Idempotent-Id", message.id);
        for (name, value) in message.headers.iter() {
            headers.append("Idempotent-Encoded", format!("{}:{}", BASE64.encode(name), BASE64.encode(value)));
        }
        self.send(headers, message.body).await;
    }

    /// Publishes a message without an id, and with damaged headers of the adapter.
    async fn publish_unreadable(&self) {
        let mut headers = HeaderMap::new();
        for name in ["Idempotent-Encoded", "Idempotent-Deaths", "Idempotent-First-At", "Idempotent-Id"] {
            headers.append(name, "\u{fffd}:%");
            headers.append(name, "");
        }
        self.send(headers, b"\xff".to_vec()).await;
    }

    async fn publish_forged(&self) {
        let mut headers = HeaderMap::new();
        let own = [("Id", "forged"), ("Subject", "payments"), ("First-At", "1"), ("Deaths", "1"), ("Letter", "x")];
        let of_letters = [("Reason", "Zm9yZ2Vk"), ("Attempts", "70"), ("Last-At", "7")];
        for (name, value) in own.into_iter().chain(of_letters) {
            headers.insert(format!("Idempotent-{name}"), value);
        }
        self.send(headers, b"body".to_vec()).await;
    }

    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)> {
        let mut stream = self.client.get_stream(format!("{}-dead", self.name)).await.unwrap();
        let state = stream.info().await.unwrap().state.clone();
        let mut letters = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            // A letter may have been put back or removed.
            if let Ok(message) = stream.direct_get(sequence).await {
                letters.push(letter(&message.headers, message.payload.to_vec()));
            }
        }
        letters
    }

    fn letters(&self) -> Box<dyn DeadLetters> {
        Box::new(JetStreamDeadLetters::new(SERVER.url(), &self.name))
    }

    async fn is_empty(&self) -> bool {
        let stream = self.client.get_stream(&self.name).await.unwrap();
        let info = stream.consumer_info(CONSUMER).await.unwrap();
        info.num_pending == 0 && info.num_ack_pending == 0
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

/// Decodes a dead letter as another program would, by the documentation.
fn letter(headers: &HeaderMap, body: Vec<u8>) -> (Message, DeadLetter) {
    let text = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
    let number = |name: &str| text(name).unwrap().parse::<u64>().unwrap();
    let base64 = |text: &str| BASE64.decode(text).unwrap();
    let mut message = Message::new(text("Idempotent-Id").unwrap_or_default(), body);
    for (name, values) in headers.iter() {
        for value in values {
            let name: &str = name.as_ref();
            if name == "Idempotent-Encoded" {
                let (name, value) = value.as_str().split_once(':').unwrap();
                message = message.header(String::from_utf8(base64(name)).unwrap(), base64(value));
            } else if !name.starts_with("Idempotent-") && !name.starts_with("Nats-") {
                message = message.header(name, value.as_str());
            }
        }
    }
    let reason = String::from_utf8(base64(&text("Idempotent-Reason").unwrap())).unwrap();
    let mut letter = DeadLetter::because(reason, Timestamp(number("Idempotent-Last-At")));
    letter.id = text("Idempotent-Letter");
    letter.first_at = Timestamp(number("Idempotent-First-At"));
    letter.attempts = number("Idempotent-Attempts").try_into().unwrap();
    letter.deaths = number("Idempotent-Deaths").try_into().unwrap();
    (message, letter)
}

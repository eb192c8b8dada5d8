//! A queue of the emulator, with a plain client to inspect it.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::MessageAttributeValue;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use idempotent_core::Timestamp;
use idempotent_harness::proxy::Proxy;
use idempotent_mq::{DeadLetter, DeadLetters};
use idempotent_sqs::{SqsDeadLetters, SqsSource};
use idempotent_testkit::broker::{Broker, Limits, Message, Outage};
use serde_json::{Value, json};

use crate::world::{World, builder_of, client};

/// Long enough that a message without keep-alive is not redelivered on a busy machine.
const VISIBILITY: Duration = Duration::from_secs(3);

/// The groups and the deduplication ids of sent messages.
static SENT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Queue {
    world: World,
    between: Proxy,
    /// The client through the proxy.
    client: Client,
}

impl Queue {
    pub(crate) async fn standard() -> Self {
        Self::of(World::new().await).await
    }

    pub(crate) async fn fifo() -> Self {
        Self::of(World::fifo().await).await
    }

    async fn of(world: World) -> Self {
        let between = Proxy::start(&world.address).await;
        let client = client(&between.address());
        Self { world, between, client }
    }

    /// Sends a message with this text in the attribute of the adapter.
    async fn send(&self, body: String, own: String) {
        let own = MessageAttributeValue::builder().data_type("String").string_value(own).build().unwrap();
        let url = self.world.url(&self.world.name).await;
        let mut send = self.world.client.send_message().queue_url(url).message_body(body);
        if self.world.name.ends_with(".fifo") {
            let number = SENT.fetch_add(1, SeqCst);
            send = send.message_group_id(format!("g{number}")).message_deduplication_id(number.to_string());
        }
        send.message_attributes("idempotent", own).send().await.unwrap();
    }
}

#[async_trait]
impl Broker for Queue {
    type Source = SqsSource;

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        (limits.held_for, limits.stays_held) = (Some(VISIBILITY), true);
        // In Base64, below the 256 KiB of the emulator.
        limits.longest_body = 180 << 10;
        limits
    }

    async fn source(&self) -> SqsSource {
        let builder = builder_of(self.client.clone(), &self.world.name).visibility_timeout(VISIBILITY);
        builder.connect().await.unwrap()
    }

    async fn publish(&self, message: Message) {
        let headers: Vec<_> = message.headers.iter().map(|(name, value)| [encode(name), encode(value)]).collect();
        let mark = if message.body.is_empty() { "empty" } else { "base64" };
        let body = if message.body.is_empty() { "-".to_owned() } else { encode(message.body) };
        let own = json!({ "id": message.id, "body": mark, "headers": headers });
        self.send(body, own.to_string()).await;
    }

    /// Publishes a message with damaged data of the adapter.
    async fn publish_unreadable(&self) {
        let own = r#"{"id": 5, "body": "base64", "headers": ["%", ["AA=="], 7], "deaths": -1, "first_at": "now"}"#;
        self.send("%".to_owned(), own.to_owned()).await;
    }

    async fn publish_forged(&self) {
        let letter = json!({ "queue": "payments", "reason": "forged", "attempts": 70, "last_at": 1 });
        let own = json!({ "id": "forged", "first_at": 1, "deaths": 1, "letter": letter });
        self.send("body".to_owned(), own.to_string()).await;
    }

    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)> {
        self.world.peek(&self.world.dead()).await.iter().map(letter).collect()
    }

    fn letters(&self) -> Box<dyn DeadLetters> {
        Box::new(SqsDeadLetters::new(self.client.clone(), &*self.world.name))
    }

    async fn is_empty(&self) -> bool {
        self.world.open().await == 0
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

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64.encode(bytes)
}

/// Decodes a dead letter as another program would, by the documentation.
fn letter(message: &aws_sdk_sqs::types::Message) -> (Message, DeadLetter) {
    let attributes = message.message_attributes().unwrap();
    let own: Value = serde_json::from_str(attributes["idempotent"].string_value().unwrap()).unwrap();
    let decode = |value: &Value| value.as_str().and_then(|text| BASE64.decode(text).ok());
    let text = message.body().unwrap();
    let body = match own["body"].as_str() {
        Some("base64") => BASE64.decode(text).unwrap(),
        Some("empty") => Vec::new(),
        _ => text.as_bytes().to_vec(),
    };
    let mut found = Message::new(own["id"].as_str().unwrap(), body);
    for (name, value) in attributes.iter().filter(|(name, _)| *name != "idempotent") {
        found = found.header(name, value.string_value().unwrap());
    }
    for pair in own["headers"].as_array().into_iter().flatten() {
        if let (Some(name), Some(value)) = (decode(&pair[0]), decode(&pair[1])) {
            found = found.header(String::from_utf8(name).unwrap(), value);
        }
    }
    let (stored, number) = (&own["letter"], |value: &Value| value.as_u64().unwrap());
    let reason = stored["reason"].as_str().unwrap().to_owned();
    let mut letter = DeadLetter::because(reason, Timestamp(number(&stored["last_at"])));
    letter.id = stored["id"].as_str().map(str::to_owned);
    letter.first_at = Timestamp(number(&own["first_at"]));
    letter.attempts = number(&stored["attempts"]).try_into().unwrap();
    letter.deaths = number(&own["deaths"]).try_into().unwrap();
    (found, letter)
}

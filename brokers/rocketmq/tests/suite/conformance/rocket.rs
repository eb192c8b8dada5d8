//! A topic of a shared broker as the subject of the laws.
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_harness::servers::RocketServer;
use idempotent_mq::{DeadLetter, DeadLetters, Headers, OutboundMessage};
use idempotent_rocketmq::{RocketDeadLetters, RocketPublisher, RocketSource};
use idempotent_testkit::broker::{Broker, Limits, Message};
use rocketmq_model::common::message::message_ext::MessageExt;

use crate::plain_client::PlainClient;
use crate::raw_message::{UNKNOWN, send_raw};

const LEVELS: u32 = 18;
/// A broker whose levels are equal. Each law uses its own level, so that its delayed messages can be counted.
static SERVER: LazyLock<RocketServer> = LazyLock::new(|| RocketServer::with_delays(&["1s"; LEVELS as usize].join(" ")));
static TOPICS: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Rocket {
    topic: String,
    group: String,
    level: u32,
    publisher: RocketPublisher,
    client: PlainClient,
}

impl Rocket {
    /// Creates a topic.
    pub(crate) async fn new() -> Self {
        // The start blocks.
        let name_server = blocking(|| SERVER.name_server()).await;
        let number = TOPICS.fetch_add(1, SeqCst);
        let (topic, group, level) = (format!("laws-{number}"), format!("group-{number}"), number % LEVELS + 1);
        let publisher = RocketPublisher::builder(SERVER.url()).build().unwrap();
        let own = RocketSource::builder(SERVER.url(), &topic, &group).build().unwrap();
        own.declare(1).await.unwrap();
        let client = PlainClient::start(name_server, format!("{group}-dead")).await;
        Self { topic, group, level, publisher, client }
    }
}

async fn blocking<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(ask).await.unwrap()
}

#[async_trait]
impl Broker for Rocket {
    type Source = RocketSource;

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        // The shortest delay. The broker's clock counts in ms.
        (limits.delay, limits.early) = (Duration::from_secs(1), Duration::from_millis(2));
        // A client takes seconds to start and to take over queues.
        limits.patience = Duration::from_secs(120);
        limits
    }

    async fn source(&self) -> RocketSource {
        // The adapter always selects this law's level, because the others are configured as too long.
        let levels: Vec<_> = (1..=LEVELS).map(|level| if level == self.level { "1s" } else { "9h" }).collect();
        let builder = RocketSource::builder(SERVER.url(), &self.topic, &self.group);
        builder.delay_levels(levels.join(" ")).build().unwrap()
    }

    async fn publish(&self, message: Message) {
        let mut outgoing = OutboundMessage::new(&self.topic, message.id, message.body);
        for (name, value) in message.headers.iter() {
            outgoing = outgoing.header(name, value);
        }
        self.publisher.publish(&outgoing).await.unwrap();
    }

    /// Publishes a message whose body has a compression that does not exist.
    async fn publish_unreadable(&self) {
        let id = [("UNIQ_KEY", "unreadable")];
        send_raw(&blocking(|| SERVER.address()).await, &self.topic, UNKNOWN, &id, b"body").await;
    }

    async fn publish_forged(&self) {
        let own = [
            ("attempt", "70"),
            ("attempts", "70"),
            ("first-at", "1"),
            ("last-at", "7"),
            ("deaths", "1"),
            ("place", "77 7 broker-b"),
            ("reason", "all is well"),
            ("topic", "payments"),
            ("group", "shipping"),
            ("id", "x"),
            ("body-at", "nowhere"),
        ];
        let own = own.map(|(name, value)| (format!("x-idempotent-{name}"), value));
        let own = own.iter().map(|(name, value)| (name.as_str(), *value));
        self.client.send(&self.topic, b"body", own.chain([("UNIQ_KEY", "forged")])).await;
    }

    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)> {
        let handled = self.handled().await;
        let collected = self.client.collected();
        let dead = collected.iter().filter(|message| u64::try_from(message.queue_offset()).unwrap() >= handled);
        dead.map(|message| self.letter(message)).collect()
    }

    fn letters(&self) -> Box<dyn DeadLetters> {
        Box::new(RocketDeadLetters::new(SERVER.url(), &self.topic, &self.group).unwrap())
    }

    async fn is_empty(&self) -> bool {
        let (topic, group, level) = (self.topic.clone(), self.group.clone(), self.level);
        let retry = format!("{group}-retry");
        // Delayed messages move into the topic for retries. In this order of queries, none is missed.
        let left = move || SERVER.backlog(&topic, &group) + SERVER.delayed(level) + SERVER.backlog(&retry, &group);
        blocking(left).await == 0
    }

    async fn cut(&self) {
        panic!("unused by the tested laws");
    }
}

impl Rocket {
    /// Returns the offset up to which operators have handled the dead letters.
    async fn handled(&self) -> u64 {
        let (dead, operators) = (format!("{}-dead", self.group), format!("{}-dead-operator", self.group));
        blocking(move || SERVER.committed(&dead, &operators)).await
    }

    fn letter(&self, message: &MessageExt) -> (Message, DeadLetter) {
        let properties: BTreeMap<_, _> =
            message.properties().iter().map(|(name, value)| (name.as_str(), value)).collect();
        let body = message.body().map(|body| body.to_vec()).unwrap_or_default();
        let (mut read, mut letter) =
            (Message::new(properties["UNIQ_KEY"].as_str(), body), DeadLetter::because("", Timestamp(0)));
        for (name, value) in properties {
            let number = || value.parse::<u64>().unwrap();
            match name.strip_prefix("x-idempotent-") {
                Some("reason") => letter.reason = value.to_string().into(),
                Some("id") => letter.id = Some(value.to_string()),
                Some("attempts") => letter.attempts = number().try_into().unwrap(),
                Some("deaths") => letter.deaths = number().try_into().unwrap(),
                Some("first-at") => letter.first_at = Timestamp(number()),
                Some("last-at") => letter.last_at = Timestamp(number()),
                Some("topic") => assert_eq!(value.as_str(), self.topic),
                Some("group") => assert_eq!(value.as_str(), self.group),
                Some("headers") => unpacked(value).iter().for_each(|(name, value)| read.headers.push(name, value)),
                Some("empty") => read.body.clear(),
                Some("compressed") => assert_eq!(value.as_str(), "7"),
                Some(other) => panic!("unknown property: {other}"),
                // A property of the broker or the client.
                None if name.bytes().all(|byte| byte.is_ascii_uppercase() || b"_1".contains(&byte)) => {}
                None => read.headers.push(name, value.as_str()),
            }
        }
        (read, letter)
    }
}

/// Decodes base64 of names and values, each after its length in four bytes.
fn unpacked(text: &str) -> Headers {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut bytes, mut held) = (0u32, Vec::new(), 0);
    for letter in text.chars() {
        (bits, held) = (bits << 6 | u32::try_from(ALPHABET.find(letter).unwrap()).unwrap(), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff).try_into().unwrap());
        }
    }
    let mut rest = bytes.as_slice();
    let mut part = || {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (part, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
        rest = behind;
        Some(part)
    };
    let mut headers = Headers::default();
    while let Some(name) = part() {
        headers.push(std::str::from_utf8(name).unwrap(), part().unwrap());
    }
    headers
}

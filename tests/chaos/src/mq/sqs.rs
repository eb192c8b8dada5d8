//! Amazon SQS, emulated by moto.
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use idempotent::mq::Delivery;
use idempotent::sqs::aws_sdk_sqs::Client;
use idempotent::sqs::aws_sdk_sqs::config::retry::RetryConfig;
use idempotent::sqs::aws_sdk_sqs::primitives::Blob;
use idempotent::sqs::aws_sdk_sqs::types::{Message, MessageAttributeValue, QueueAttributeName};
use idempotent::sqs::{SqsSource, client};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::MotoServer;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::broker::{Broker, Letter, QUEUE};
use super::copy::Copy;
use crate::deadline::connected;
use crate::server::{self, Server};

pub(super) struct Sqs {
    // Dropped in this order.
    publisher: Client,
    judge: Client,
    proxy: Proxy,
    server: MotoServer,
    /// The URLs of the queue and of the queue of its dead letters.
    queue: String,
    dead: String,
    /// The permits to publish.
    publishing: Semaphore,
    runtime: Handle,
}

type Attributes = HashMap<String, MessageAttributeValue>;

const DEAD: &str = "orders-dead";
/// The attribute of the adapter's own data.
const OWN: &str = "idempotent";
/// The members of the own data that belong to a dead letter.
const OF_DEATH: [&str; 3] = ["letter", "first_at", "deaths"];
/// The time for a confirmation.
const SOON: Duration = Duration::from_secs(5);
/// The number of requests to publish at a time. With many requests, the emulator answers none of them in time.
const PUBLISHING: usize = 4;
/// The time after which another worker takes over the messages of a killed one.
const VISIBILITY: Duration = Duration::from_secs(2);
const LONG_POLL: Duration = Duration::from_secs(1);
/// The seconds for which a dead letter stays hidden after the judge has read it.
const HIDDEN: i32 = 3_600;

/// Connects to the queue once the server can be reached.
pub(super) async fn source(url: &str) -> anyhow::Result<SqsSource> {
    let client = client(url)?;
    let source = connected(|| {
        let source = SqsSource::builder(client.clone(), QUEUE).declare();
        source.visibility_timeout(VISIBILITY).long_poll(LONG_POLL).connect()
    });
    Ok(source.await)
}

/// Sends a dead letter without headers, which is a flaw.
pub(super) async fn bury_bare(url: &str, delivery: &Delivery) -> anyhow::Result<()> {
    let client = client(url)?;
    let dead = queue_url(&client, DEAD).await?;
    client.send_message().queue_url(dead).message_body(BASE64.encode(&delivery.body)).send().await?;
    Ok(())
}

async fn queue_url(client: &Client, name: &str) -> anyhow::Result<String> {
    client.get_queue_url().queue_name(name).send().await?.queue_url.context("a queue without a URL")
}

fn url_of(address: &str) -> String {
    format!("sqs://eu-west-1?endpoint=http://{address}")
}

impl Sqs {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let (server, proxy) = server::start(MotoServer::start).await?;
        let url = url_of(&proxy.address());
        drop(source(&url).await?);
        // The publisher repeats nothing by itself.
        let once = client(&url)?.config().to_builder().retry_config(RetryConfig::disabled());
        let judge = client(&url_of(&server.address()))?;
        let (queue, dead) = (queue_url(&judge, QUEUE).await?, queue_url(&judge, DEAD).await?);
        let publisher = Client::from_conf(once.build());
        let publishing = Semaphore::new(PUBLISHING);
        Ok(Self { publisher, judge, proxy, server, queue, dead, publishing, runtime: Handle::current() })
    }

    async fn unsettled(&self) -> anyhow::Result<Vec<(String, u64)>> {
        let get = self.judge.get_queue_attributes().queue_url(&self.queue);
        let all = get.attribute_names(QueueAttributeName::All).send().await?.attributes.unwrap_or_default();
        let count = |name: &str, attribute| {
            let count = all.get(&attribute).with_context(|| format!("SQS does not count the {name} messages"))?;
            anyhow::Ok((name.to_owned(), count.parse()?))
        };
        let mut left = vec![
            count("ready", QueueAttributeName::ApproximateNumberOfMessages)?,
            count("hidden", QueueAttributeName::ApproximateNumberOfMessagesNotVisible)?,
            count("delayed", QueueAttributeName::ApproximateNumberOfMessagesDelayed)?,
        ];
        left.retain(|(_, count)| *count > 0);
        Ok(left)
    }
}

/// Returns the text of the body of a copy, and whether the text is Base64.
fn body(copy: &Copy) -> (String, bool) {
    match String::from_utf8(copy.body.clone()) {
        Ok(text) => (text, false),
        Err(_) => (BASE64.encode(&copy.body), true),
    }
}

/// Returns the attributes of a copy. A header with several values is in the adapter's own data.
fn attributes(copy: &Copy) -> Attributes {
    let mut own = json!({ "id": copy.id, "headers": [["YWdhaW4=", "MQ=="], ["YWdhaW4=", ""]] });
    if copy.forged {
        own["letter"] = json!({ "queue": "elsewhere", "reason": "forged" });
        own["deaths"] = 7.into();
    }
    if body(copy).1 {
        own["body"] = "base64".into();
    }
    let text = |text: String| MessageAttributeValue::builder().data_type("String").string_value(text);
    let number = MessageAttributeValue::builder().data_type("Number.int").string_value("7");
    let trace = MessageAttributeValue::builder().data_type("Binary.trace").binary_value(Blob::new(copy.trace.clone()));
    let all = [("copy", text(copy.name.clone())), ("number", number), ("trace", trace), (OWN, text(own.to_string()))];
    // Building fails only without a type.
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.build().ok()?))).collect()
}

#[async_trait]
impl Broker for Sqs {
    fn url(&self) -> String {
        url_of(&self.proxy.address())
    }

    async fn publish(&self, copy: &Copy) -> anyhow::Result<bool> {
        let _permit = self.publishing.acquire().await?;
        let send = self.publisher.send_message().queue_url(&self.queue).message_body(body(copy).0);
        let sent = timeout(SOON, send.set_message_attributes(Some(attributes(copy))).send()).await;
        Ok(sent.is_ok_and(|sent| sent.is_ok()))
    }

    fn letter(&self, copy: &Copy) -> Letter {
        letter(&body(copy).0, &attributes(copy))
    }

    fn left(&self) -> anyhow::Result<Vec<(String, u64)>> {
        self.runtime.block_on(self.unsettled())
    }

    async fn letters(&self) -> anyhow::Result<Vec<Letter>> {
        let mut letters = Vec::new();
        loop {
            let receive = self.judge.receive_message().queue_url(&self.dead).max_number_of_messages(10);
            let receive = receive.visibility_timeout(HIDDEN).message_attribute_names("All");
            let messages = receive.send().await?.messages.unwrap_or_default();
            if messages.is_empty() {
                return Ok(letters);
            }
            letters.extend(messages.into_iter().map(|Message { body, message_attributes, .. }| {
                letter(&body.unwrap_or_default(), &message_attributes.unwrap_or_default())
            }));
        }
    }

    fn place(&self) -> (&dyn Server, &Proxy) {
        (&self.server, &self.proxy)
    }
}

/// Returns the message without the data of its death.
fn letter(body: &str, attributes: &Attributes) -> Letter {
    let text = |name: &str| attributes.get(name).and_then(MessageAttributeValue::string_value);
    let own = text(OWN).and_then(|text| serde_json::from_str::<BTreeMap<String, Value>>(text).ok());
    let own = own.map(|mut own| {
        own.retain(|name, _| !OF_DEATH.contains(&&**name));
        own
    });
    let others: BTreeMap<_, _> = attributes.iter().filter(|(name, _)| *name != OWN).collect();
    Letter { copy: text("copy").map(str::to_owned), content: format!("{body} {own:?} {others:?}") }
}

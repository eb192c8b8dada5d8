//! NATS JetStream.
use std::time::Duration;

use anyhow::ensure;
use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use idempotent::mq::Delivery;
use idempotent::nats::JetStreamSource;
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::NatsServer;
use tokio::runtime::Handle;

use super::broker::{Broker, Letter, QUEUE};
use super::copy::Copy;
use crate::deadline::connected;
use crate::server::{self, Server};

pub(super) struct Nats {
    // Dropped in this order.
    publisher: Context,
    judge: Context,
    proxy: Proxy,
    server: NatsServer,
    runtime: Handle,
}

const CONSUMER: &str = "billing";
const DEAD: &str = "orders-dead";
/// The prefix of the adapter's headers.
const MARK: &str = "Idempotent-";
const ID: &str = "Idempotent-Id";
const ENCODED: &str = "Idempotent-Encoded";
/// The time for a confirmation.
const SOON: Duration = Duration::from_secs(2);
/// The time after which another worker takes over the messages of a killed one.
const ACK_WAIT: Duration = Duration::from_secs(2);

/// Connects to the stream once the server can be reached.
pub(crate) async fn source(url: &str) -> JetStreamSource {
    connected(|| {
        let source = JetStreamSource::builder(url, QUEUE, CONSUMER).declare([format!("{QUEUE}.>")]).ack_wait(ACK_WAIT);
        source.connect()
    })
    .await
}

/// A dead letter as it must not be.
pub(super) async fn bury_bare(url: &str, delivery: &Delivery) -> anyhow::Result<()> {
    let jetstream = connect(url).await?;
    let sent = jetstream.publish(format!("idempotent.dead.{DEAD}"), delivery.body.clone().into()).await?;
    sent.await?;
    Ok(())
}

async fn connect(url: &str) -> anyhow::Result<Context> {
    let options = async_nats::ConnectOptions::new().connection_timeout(SOON).request_timeout(Some(SOON));
    Ok(jetstream::ContextBuilder::new().timeout(SOON).ack_timeout(SOON).build(options.connect(url).await?))
}

impl Nats {
    pub(super) async fn start() -> anyhow::Result<Self> {
        // The server writes each message to its file before it confirms the message.
        let (server, proxy) = server::start(NatsServer::start_durable).await?;
        let url = format!("nats://{}", proxy.address());
        drop(source(&url).await);
        let (publisher, judge) = (connect(&url).await?, connect(&server.url()).await?);
        Ok(Self { publisher, judge, proxy, server, runtime: Handle::current() })
    }

    async fn unsettled(&self) -> anyhow::Result<Vec<(String, u64)>> {
        let stream = self.judge.get_stream(QUEUE).await?;
        let info = stream.consumer_info(CONSUMER).await?;
        let held = ("held".to_owned(), u64::try_from(info.num_ack_pending)?);
        let unread = ("unread".to_owned(), info.num_pending);
        Ok([held, unread].into_iter().filter(|(_, count)| *count > 0).collect())
    }
}

/// Returns the headers of a copy. There is no `Nats-Msg-Id`, because the server drops the copies of one id.
fn headers(copy: &Copy) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ID, copy.id.as_str());
    headers.insert("copy", copy.name.as_str());
    headers.append("again", "1");
    headers.append("again", "");
    if copy.forged {
        headers.insert("Idempotent-Subject", "elsewhere");
        headers.insert("Idempotent-Deaths", "7");
    }
    headers.insert(ENCODED, format!("{}:{}", BASE64.encode("trace"), BASE64.encode(&copy.trace)));
    headers
}

#[async_trait]
impl Broker for Nats {
    fn url(&self) -> String {
        format!("nats://{}", self.proxy.address())
    }

    async fn publish(&self, copy: &Copy) -> anyhow::Result<bool> {
        let body = copy.body.clone().into();
        Ok(match self.publisher.publish_with_headers(format!("{QUEUE}.new"), headers(copy), body).await {
            Ok(confirmation) => confirmation.await.is_ok(),
            Err(_) => false,
        })
    }

    fn letter(&self, copy: &Copy) -> Letter {
        letter(&headers(copy), &copy.body)
    }

    fn left(&self) -> anyhow::Result<Vec<(String, u64)>> {
        self.runtime.block_on(self.unsettled())
    }

    async fn letters(&self) -> anyhow::Result<Vec<Letter>> {
        let mut stream = self.judge.get_stream(DEAD).await?;
        let state = stream.info().await?.state.clone();
        let mut letters = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.direct_get(sequence).await?;
            letters.push(letter(&message.headers, &message.payload));
        }
        ensure!(letters.len() as u64 == state.messages, "a dead letter was removed");
        Ok(letters)
    }

    fn place(&self) -> (&dyn Server, &Proxy) {
        (&self.server, &self.proxy)
    }
}

fn letter(headers: &HeaderMap, body: &[u8]) -> Letter {
    let text = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
    let mut all = vec![format!("id={}", text(ID).unwrap_or_default()), format!("body={}", body.escape_ascii())];
    for (name, values) in headers.iter() {
        let name = name.to_string();
        for (at, value) in values.iter().enumerate() {
            if name == ENCODED {
                all.push(decoded(value.as_str()).unwrap_or_else(|| format!("unreadable={value}")));
            } else if !name.starts_with(MARK) && !name.starts_with("Nats-") {
                all.push(format!("{name}[{at}]={}", value.as_str().escape_default()));
            }
        }
    }
    // The client returns the names in a random order.
    all.sort();
    Letter { copy: text("copy"), content: all.join(" ") }
}

/// Decodes a header. The adapter transmits a value that is text as it is, so both forms have one content.
fn decoded(encoded: &str) -> Option<String> {
    let (name, value) = encoded.split_once(':')?;
    let (name, value) = (String::from_utf8(BASE64.decode(name).ok()?).ok()?, BASE64.decode(value).ok()?);
    let value = match std::str::from_utf8(&value) {
        Ok(text) => text.escape_default().to_string(),
        Err(_) => value.escape_ascii().to_string(),
    };
    Some(format!("{name}[0]={value}"))
}

//! NATS JetStream: a stream, read through a durable consumer.
use std::fmt;
use std::time::Duration;

use anyhow::anyhow;
use idempotent::nats::{JetStreamPublisher, JetStreamSource};

use super::outgoing::Lines;
use super::url::{SourceUrl, shown};
use super::{publishing, told};

#[derive(Debug)]
pub(crate) struct Nats {
    /// The URL with its password.
    url: String,
    shown: String,
    stream: String,
    consumer: String,
    subject: String,
}

/// The time after which the messages of a killed worker are delivered again.
const ACK_WAIT: Duration = Duration::from_secs(5);

impl Nats {
    pub(crate) fn of(mut source: SourceUrl) -> anyhow::Result<Self> {
        let (stream, consumer) = (source.need("stream", "stream")?, source.need("consumer", "consumer")?);
        let subject = source.take("subject").unwrap_or_else(|| format!("{stream}.new"));
        let scheme = if source.scheme() == "tls" { "tls" } else { "nats" };
        let url = source.into_url(scheme, "stream, consumer and subject")?;
        Ok(Self { shown: shown(&url), url: url.into(), stream, consumer, subject })
    }

    pub(crate) async fn source(&self) -> anyhow::Result<JetStreamSource> {
        let source = JetStreamSource::builder(&self.url, &*self.stream, &*self.consumer);
        let source = source.declare([self.subject.as_str()]).ack_wait(ACK_WAIT);
        source.connect().await.map_err(|error| {
            anyhow!(
                "cannot use {self}: {}; is NATS with JetStream there, and may the user of --source use the stream?",
                told(&error)
            )
        })
    }

    /// Publishes the lines. Returns the number of confirmed messages. The stream drops a line whose id it has seen within two
    /// minutes.
    pub(crate) async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        publishing::publish(&JetStreamPublisher::new(&self.url), &self.subject, self, lines).await
    }

    pub(crate) fn dead_letters(&self) -> String {
        format!("the stream {}-dead", self.stream)
    }
}

impl fmt::Display for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stream {} at {}", self.stream, self.shown)
    }
}

//! NATS JetStream: a stream, read through a durable consumer.
use std::time::Duration;

use idempotent::nats::{JetStreamPublisher, JetStreamSource};

use super::outgoing::{Lines, publish};
use super::url::SourceUrl;
use super::{Address, Place, Source};

#[derive(Debug)]
pub(crate) struct Nats {
    pub(super) at: Address,
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
        Ok(Self { at: Address::new(url, "stream", stream), consumer, subject })
    }
}

impl Place for Nats {
    async fn source(&self) -> anyhow::Result<impl Source> {
        let source = JetStreamSource::builder(&self.at.url, &*self.at.name, &*self.consumer);
        let source = source.declare([self.subject.as_str()]).ack_wait(ACK_WAIT);
        source.connect().await.map_err(|error| {
            self.at.unusable(&error, "is NATS with JetStream there, and may the user of --source use the stream?")
        })
    }

    /// Publishes the lines. The stream drops a line whose id it has seen within two minutes.
    async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        publish(&JetStreamPublisher::new(&self.at.url), &self.subject, &self.at, lines).await
    }

    fn dead_letters(&self) -> String {
        format!("the stream {}-dead", self.at.name)
    }
}

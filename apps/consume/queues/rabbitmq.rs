//! RabbitMQ: a queue.
use std::fmt;
use std::time::Duration;

use anyhow::{anyhow, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use idempotent::mq::OutboundMessage;
use idempotent::rabbitmq::{self, RabbitProperties, RabbitPublisher, RabbitSource};

use super::outgoing::Lines;
use super::told;
use super::url::{SourceUrl, shown};

#[derive(Debug)]
pub(crate) struct RabbitMq {
    /// The URL with its password.
    url: String,
    shown: String,
    queue: rabbitmq::Queue,
    name: String,
}

/// Messages under way at once.
const IN_FLIGHT: usize = 64;
/// A file need not hurry: a broker whose disk is busy is not sent everything twice.
const CONFIRM: Duration = Duration::from_secs(20);

impl RabbitMq {
    pub(crate) fn of(mut source: SourceUrl) -> anyhow::Result<Self> {
        let name = source.need("queue", "queue")?;
        let queue = match source.take("kind").as_deref() {
            None | Some("classic") => rabbitmq::Queue::classic(&name),
            Some("quorum") => rabbitmq::Queue::quorum(&name),
            Some("existing") => rabbitmq::Queue::existing(&name),
            Some(other) => bail!("--source: a queue's kind is classic, quorum or existing, not `{other}`"),
        };
        let heartbeat = source.take("heartbeat");
        let scheme = if source.scheme() == "amqps" { "amqps" } else { "amqp" };
        let mut url = source.into_url(scheme, "queue, kind and heartbeat")?;
        if matches!(url.path(), "" | "/") {
            // Without a path, the URL would name a vhost with an empty name, which does not exist.
            url.set_path("/%2f");
        }
        let shown = shown(&url);
        url.set_query(heartbeat.map(|seconds| format!("heartbeat={seconds}")).as_deref());
        Ok(Self { url: url.into(), shown, queue, name })
    }

    pub(crate) async fn source(&self) -> anyhow::Result<RabbitSource> {
        let source = RabbitSource::builder(&self.url, self.queue.clone()).build();
        let source = source.map_err(|error| anyhow!("--source {}: {error}", self.shown))?;
        source.declare().await.map_err(|error| {
            anyhow!(
                "cannot use {self}: {}; is RabbitMQ there, may the user of --source use the virtual host, and is the queue \
                 of that kind (`&kind=existing` takes it as it is)?",
                told(&error)
            )
        })?;
        Ok(source)
    }

    /// Publishes the lines. Returns the number of confirmed messages.
    pub(crate) async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        let publisher = RabbitPublisher::builder(&self.url).in_flight(IN_FLIGHT);
        let publisher = publisher.confirm_within(CONFIRM).give_up_after(CONFIRM * 3).build()?;
        let (publisher, json) = (&publisher, &RabbitProperties::default().content_type("application/json"));
        let lines = stream::unfold(lines, async |mut lines| Some((lines.recv().await?, lines)));
        let sending = lines.map(|line| async move {
            let line = line?;
            let message = OutboundMessage::new(&self.name, line.id, line.body);
            let sent = publisher.publish_with(&message, json).await;
            sent.map(drop).map_err(|error| anyhow!("line {} for {self}: {}", line.number, told(&error)))
        });
        sending.buffer_unordered(IN_FLIGHT).try_fold(0, async |sent, ()| Ok(sent + 1)).await
    }

    pub(crate) fn dead_letters(&self) -> String {
        format!("the queue {}.dead", self.name)
    }
}

impl fmt::Display for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue {} at {}", self.name, self.shown)
    }
}

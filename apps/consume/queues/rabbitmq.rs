//! RabbitMQ: a queue.
use std::time::Duration;

use anyhow::{anyhow, bail};
use idempotent::rabbitmq::{self, RabbitProperties, RabbitPublisher, RabbitSource};

use super::outgoing::{Lines, send_each};
use super::url::{SourceUrl, shown};
use super::{Address, Place, Source};

#[derive(Debug)]
pub(crate) struct RabbitMq {
    pub(super) at: Address,
    queue: rabbitmq::Queue,
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
        Ok(Self { at: Address { url: url.into(), shown, kind: "queue", name }, queue })
    }
}

impl Place for RabbitMq {
    async fn source(&self) -> anyhow::Result<impl Source> {
        let source = RabbitSource::builder(&self.at.url, self.queue.clone()).build();
        let source = source.map_err(|error| anyhow!("--source {}: {error}", self.at.shown))?;
        let hint = "is RabbitMQ there, may the user of --source use the virtual host, and is the queue of that kind \
                    (`&kind=existing` takes it as it is)?";
        source.declare().await.map_err(|error| self.at.unusable(&error, hint))?;
        Ok(source)
    }

    async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        let publisher = RabbitPublisher::builder(&self.at.url).in_flight(IN_FLIGHT);
        let publisher = publisher.confirm_within(CONFIRM).give_up_after(CONFIRM * 3).build()?;
        let json = &RabbitProperties::default().content_type("application/json");
        let send = async |message: &_| publisher.publish_with(message, json).await.map(drop);
        send_each(lines, (&self.at.name, &self.at), IN_FLIGHT, send).await
    }

    fn dead_letters(&self) -> String {
        format!("the queue {}.dead", self.at.name)
    }
}

//! A broker, as the harness sees it.
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use async_trait::async_trait;
use idempotent_harness::proxy::Proxy;

use super::copy::Copy;
#[cfg(feature = "kafka")]
use super::kafka;
#[cfg(feature = "rocketmq")]
use super::rocket;
#[cfg(feature = "sqs")]
use super::sqs;
use super::{nats, pgmq, rabbit, streams};
use crate::named::named;
use crate::plan::Harm;
use crate::server::Server;

/// The queue, or the stream.
pub(crate) const QUEUE: &str = "orders";

named! {
    /// The brokers there are.
    pub enum Kind {
        /// A quorum queue of RabbitMQ.
        Rabbitmq = "rabbitmq",
        /// A quorum queue of RabbitMQ 4.3 or later, with delayed retry. `IDEMPOTENT_RABBITMQ_SBIN` names such a server.
        RabbitmqDelayedRetry = "rabbitmq-delayed-retry",
        /// A group of a Redis stream, on a server that writes down each change before it answers.
        RedisStreams = "redis-streams",
        /// A stream of NATS JetStream, on a server that writes down each change before it answers.
        Nats = "nats",
        /// A queue of PGMQ.
        Pgmq = "pgmq",
        /// A topic of Kafka, whose partitions pause for a retry. Only with the feature `kafka`, whose client takes minutes to build.
        #[cfg(feature = "kafka")]
        Kafka = "kafka",
        /// A topic of Kafka with a retry topic. Only with the feature `kafka`.
        #[cfg(feature = "kafka")]
        KafkaRetryTopic = "kafka-retry-topic",
        /// A topic of RocketMQ. Only with the feature `rocketmq`, whose client takes minutes to build.
        #[cfg(feature = "rocketmq")]
        Rocketmq = "rocketmq",
        /// A standard queue of SQS. Only with the feature `sqs`, whose client takes minutes to build.
        #[cfg(feature = "sqs")]
        Sqs = "sqs",
    }
}

impl Kind {
    /// Returns whether the broker assigns partitions to workers, and reassigns them.
    pub(super) fn rebalances(self) -> bool {
        self.name().starts_with("kafka")
    }

    /// Returns the time from one message to the next. The emulator of SQS needs 15 ms for each request.
    pub(super) fn pace(self) -> Duration {
        Duration::from_millis(if self.name() == "sqs" { 120 } else { 40 })
    }

    /// Returns the largest number of unconfirmed messages. On a busy machine, the emulator of SQS would otherwise get most
    /// messages after the faults.
    pub(super) fn backlog(self) -> usize {
        if self.name() == "sqs" { 16 } else { 150 }
    }

    /// Returns whether the broker itself delays a message that a consumer defers.
    pub(super) fn delays_deferred(self) -> bool {
        self == Self::RabbitmqDelayedRetry
    }

    /// Returns whether the broker marks each delivery after the first one of a message, but not the first one of a copy.
    pub(super) fn marks_redeliveries(self) -> bool {
        self.name().starts_with("rabbitmq")
    }

    /// One of our own, with its queue.
    pub(super) async fn start(self) -> anyhow::Result<Arc<dyn Broker>> {
        Ok(match self {
            Self::Rabbitmq => Arc::new(rabbit::Rabbit::start(false).await?),
            Self::RabbitmqDelayedRetry => Arc::new(rabbit::Rabbit::start(true).await?),
            Self::RedisStreams => Arc::new(streams::Streams::start().await?),
            Self::Nats => Arc::new(nats::Nats::start().await?),
            Self::Pgmq => Arc::new(pgmq::Pgmq::start().await?),
            #[cfg(feature = "kafka")]
            Self::Kafka => Arc::new(kafka::Kafka::start(false).await?),
            #[cfg(feature = "kafka")]
            Self::KafkaRetryTopic => Arc::new(kafka::Kafka::start(true).await?),
            #[cfg(feature = "rocketmq")]
            Self::Rocketmq => Arc::new(rocket::Rocket::start().await?),
            #[cfg(feature = "sqs")]
            Self::Sqs => Arc::new(sqs::Sqs::start().await?),
        })
    }
}

/// A server, and a proxy that everybody but the judge goes through.
#[async_trait]
pub(super) trait Broker: Send + Sync {
    /// Returns the URL for workers.
    fn url(&self) -> String;

    /// Publishes a copy. Returns whether the broker confirmed the copy.
    async fn publish(&self, copy: &Copy) -> anyhow::Result<bool>;

    /// Returns true if a forged copy has headers with the names of the adapter's own.
    fn forges(&self) -> bool {
        true
    }

    /// Returns the expected dead letter of a copy.
    fn letter(&self, copy: &Copy) -> Letter;

    /// Returns the number of unsettled messages in each queue, without empty queues and dead letters. Blocks.
    fn left(&self) -> anyhow::Result<Vec<(String, u64)>>;

    /// Returns all dead letters.
    async fn letters(&self) -> anyhow::Result<Vec<Letter>>;

    /// Returns the server to which faults apply, and the proxy of all clients except the judge.
    fn place(&self) -> (&dyn Server, &Proxy);
}

/// Does it, and waits until it is done. Blocks.
pub(super) fn suffer(broker: &dyn Broker, harm: Harm) -> anyhow::Result<()> {
    let (server, proxy) = broker.place();
    match harm {
        Harm::CutBroker => proxy.cut_all(),
        Harm::SilenceBroker(long) => {
            proxy.silence();
            std::thread::sleep(long);
            proxy.speak();
            // A connection that has lost bytes stays silent until it is closed.
            proxy.cut_all();
        }
        Harm::StopBroker(long) => {
            server.pause();
            std::thread::sleep(long);
            server.resume();
        }
        Harm::CrashBroker => server.crash(),
        other => bail!("{other:?} is not for a broker"),
    }
    Ok(())
}

/// A dead letter, without the marks that were left on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Letter {
    /// The name of the copy, from its header.
    pub(super) copy: Option<String>,
    /// Body, headers and properties, as text.
    pub(super) content: String,
}

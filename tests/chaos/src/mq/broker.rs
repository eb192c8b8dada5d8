//! A broker, as the harness sees it.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use async_trait::async_trait;
use idempotent_harness::proxy::Proxy;
use serde::{Deserialize, Serialize};

use super::copy::Copy;
#[cfg(feature = "kafka")]
use super::kafka;
#[cfg(feature = "rocketmq")]
use super::rocket;
#[cfg(feature = "sqs")]
use super::sqs;
use super::{nats, pgmq, rabbit, streams};
use crate::plan::Harm;
use crate::server::Server;

/// The queue, or the stream.
pub(crate) const QUEUE: &str = "orders";

/// The brokers there are.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub enum Kind {
    /// A quorum queue of RabbitMQ.
    Rabbitmq,
    /// A quorum queue of RabbitMQ 4.3 or later, with delayed retry. `IDEMPOTENT_RABBITMQ_SBIN` names such a server.
    RabbitmqDelayedRetry,
    /// A group of a Redis stream, on a server that writes down each change before it answers.
    RedisStreams,
    /// A stream of NATS JetStream, on a server that writes down each change before it answers.
    Nats,
    /// A queue of PGMQ.
    Pgmq,
    /// A topic of Kafka, whose partitions pause for a retry. Only with the feature `kafka`, whose client takes minutes to build.
    #[cfg(feature = "kafka")]
    Kafka,
    /// A topic of Kafka with a retry topic. Only with the feature `kafka`.
    #[cfg(feature = "kafka")]
    KafkaRetryTopic,
    /// A topic of RocketMQ. Only with the feature `rocketmq`, whose client takes minutes to build.
    #[cfg(feature = "rocketmq")]
    Rocketmq,
    /// A standard queue of SQS. Only with the feature `sqs`, whose client takes minutes to build.
    #[cfg(feature = "sqs")]
    Sqs,
}

impl Kind {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Rabbitmq,
        Self::RabbitmqDelayedRetry,
        Self::RedisStreams,
        Self::Nats,
        Self::Pgmq,
        #[cfg(feature = "kafka")]
        Self::Kafka,
        #[cfg(feature = "kafka")]
        Self::KafkaRetryTopic,
        #[cfg(feature = "rocketmq")]
        Self::Rocketmq,
        #[cfg(feature = "sqs")]
        Self::Sqs,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rabbitmq => "rabbitmq",
            Self::RabbitmqDelayedRetry => "rabbitmq-delayed-retry",
            Self::RedisStreams => "redis-streams",
            Self::Nats => "nats",
            Self::Pgmq => "pgmq",
            #[cfg(feature = "kafka")]
            Self::Kafka => "kafka",
            #[cfg(feature = "kafka")]
            Self::KafkaRetryTopic => "kafka-retry-topic",
            #[cfg(feature = "rocketmq")]
            Self::Rocketmq => "rocketmq",
            #[cfg(feature = "sqs")]
            Self::Sqs => "sqs",
        }
    }

    /// Returns whether the broker assigns partitions to workers, and reassigns them.
    pub(super) fn rebalances(self) -> bool {
        self.name().starts_with("kafka")
    }

    /// Returns the time from one message to the next. The emulator of SQS needs 15 ms for each request.
    pub(super) fn pace(self) -> Duration {
        Duration::from_millis(if self.name() == "sqs" { 120 } else { 40 })
    }

    /// Returns whether the broker itself delays a message that a consumer defers.
    pub(super) fn delays_deferred(self) -> bool {
        self == Self::RabbitmqDelayedRetry
    }

    /// Returns whether the broker marks each delivery after the first one of a message, but not the first one of a copy.
    pub(super) fn marks_redeliveries(self) -> bool {
        self.name().starts_with("rabbitmq")
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
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
pub(super) trait Broker: fmt::Debug + Send + Sync {
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

    /// Returns the proxy of all clients except the judge.
    fn proxy(&self) -> &Proxy;

    /// Returns the server to which faults apply.
    fn server(&self) -> &dyn Server;
}

/// Does it, and waits until it is done. Blocks.
pub(super) fn suffer(broker: &dyn Broker, harm: Harm) -> anyhow::Result<()> {
    match harm {
        Harm::CutBroker => broker.proxy().cut_all(),
        Harm::SilenceBroker(long) => {
            broker.proxy().silence();
            std::thread::sleep(long);
            broker.proxy().speak();
            // A connection that has lost bytes stays silent until it is closed.
            broker.proxy().cut_all();
        }
        Harm::StopBroker(long) => {
            broker.server().pause();
            std::thread::sleep(long);
            broker.server().resume();
        }
        Harm::CrashBroker => broker.server().crash(),
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

//! The queue of callbacks, on RocketMQ or RabbitMQ.
use std::time::Duration;

use anyhow::bail;
use idempotent::Executor;
use idempotent::mq::{Consumer, ConsumerCounts, MessageHandler, OutboundMessage, Publish, Schedule, Source};
use idempotent::rabbitmq::{Queue, RabbitPublisher, RabbitSource};
#[cfg(feature = "rocketmq")]
use idempotent::rocketmq::{RocketPublisher, RocketSource};

use crate::callback::PaymentResult;

/// The queue, or the topic and its consumer group.
const QUEUE: &str = "payment_callbacks";
/// The number of queues of the topic.
#[cfg(feature = "rocketmq")]
const QUEUES: u32 = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Broker {
    /// rocketmq://HOST or rocketmqs://… of a name server, or amqp://…
    #[arg(long)]
    broker: String,
}

impl Broker {
    /// Publishes the callback of a payment twice, with different message ids.
    pub(crate) async fn publish_twice(&self, result: &PaymentResult) -> anyhow::Result<()> {
        let publisher: Box<dyn Publish> = match self.broker.split_once("://") {
            Some(("amqp" | "amqps", _)) => {
                RabbitSource::builder(&self.broker, Queue::quorum(QUEUE)).build()?.declare().await?;
                Box::new(RabbitPublisher::builder(&self.broker).build()?)
            }
            #[cfg(feature = "rocketmq")]
            Some(("rocketmq" | "rocketmqs", _)) => {
                RocketSource::builder(&*self.broker, QUEUE, QUEUE).build()?.declare(QUEUES).await?;
                Box::new(RocketPublisher::builder(&*self.broker).build()?)
            }
            _ => return self.unsupported(),
        };
        let body = serde_json::to_vec(result)?;
        let calls = [1, 2].map(|call| OutboundMessage::new(QUEUE, format!("{}/{call}", result.order), body.clone()));
        publisher.publish(&calls).await.into_iter().try_for_each(|published| Ok(published.map(drop)?))
    }

    /// Handles callbacks until `stop` ends.
    pub(crate) async fn consume(
        &self,
        executor: &Executor,
        handler: MessageHandler,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<ConsumerCounts> {
        match self.broker.split_once("://") {
            Some(("amqp" | "amqps", _)) => {
                let source = RabbitSource::builder(&self.broker, Queue::quorum(QUEUE)).build()?;
                source.declare().await?;
                run(source, executor, handler, stop).await
            }
            #[cfg(feature = "rocketmq")]
            Some(("rocketmq" | "rocketmqs", _)) => {
                let source = RocketSource::builder(&*self.broker, QUEUE, QUEUE).build()?;
                source.declare(QUEUES).await?;
                run(source, executor, handler, stop).await
            }
            _ => self.unsupported(),
        }
    }

    fn unsupported<T>(&self) -> anyhow::Result<T> {
        if cfg!(not(feature = "rocketmq")) && self.broker.starts_with("rocketmq:") {
            bail!("--broker: this build has no RocketMQ; add `--features rocketmq`");
        }
        bail!("--broker: expected rocketmq://HOST, rocketmqs://… or amqp://…");
    }
}

async fn run(
    source: impl Source,
    executor: &Executor,
    handler: MessageHandler,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<ConsumerCounts> {
    let consumer = Consumer::builder(source, "payment_callback", executor)
        .schedule(Schedule::exponential(Duration::from_secs(1), Duration::from_secs(60)))
        .grace(Duration::from_secs(5))
        .build(handler)?;
    Ok(consumer.run(stop).await?)
}

//! `--source`: a queue of a real broker. Each broker has its own file.
#[cfg(feature = "kafka")]
mod kafka;
mod listen;
mod nats;
mod outgoing;
mod pgmq;
mod publishing;
mod rabbitmq;
mod redis_streams;
#[cfg(feature = "rocketmq")]
mod rocketmq;
#[cfg(feature = "sqs")]
mod sqs;
mod url;

use std::sync::Arc;

use anyhow::bail;

#[cfg(feature = "kafka")]
use self::kafka::Kafka;
use self::nats::Nats;
use self::pgmq::Pgmq;
use self::rabbitmq::RabbitMq;
use self::redis_streams::RedisStreams;
#[cfg(feature = "rocketmq")]
use self::rocketmq::RocketMq;
#[cfg(feature = "sqs")]
use self::sqs::Sqs;
use self::url::SourceUrl;
use crate::Job;
use crate::args::Args;
use crate::input::Input;
use crate::screen::Screen;
use crate::summary::Over;

/// A queue.
#[derive(Debug)]
pub(crate) enum Queue {
    RabbitMq(RabbitMq),
    RedisStreams(RedisStreams),
    Nats(Nats),
    Pgmq(Pgmq),
    #[cfg(feature = "rocketmq")]
    RocketMq(RocketMq),
    #[cfg(feature = "kafka")]
    Kafka(Kafka),
    #[cfg(feature = "sqs")]
    Sqs(Sqs),
}

/// The schemes of brokers whose clients take minutes to build, and their features.
const HEAVY: [(&str, &str); 4] =
    [("rocketmq", "rocketmq"), ("kafka", "kafka"), ("kafkas", "kafka-tls"), ("sqs", "sqs")];

impl Queue {
    pub(crate) fn parse(source: &str) -> anyhow::Result<Self> {
        let url = SourceUrl::parse(source)?;
        match url.scheme() {
            "rabbitmq" | "amqp" | "amqps" => Ok(Self::RabbitMq(RabbitMq::of(url)?)),
            "redis-streams" => Ok(Self::RedisStreams(RedisStreams::of(url)?)),
            "nats" | "tls" => Ok(Self::Nats(Nats::of(url)?)),
            "pgmq" => Ok(Self::Pgmq(Pgmq::of(url)?)),
            #[cfg(feature = "rocketmq")]
            "rocketmq" => Ok(Self::RocketMq(RocketMq::of(url)?)),
            #[cfg(feature = "kafka")]
            "kafka" => Ok(Self::Kafka(Kafka::of(url)?)),
            #[cfg(feature = "kafka-tls")]
            "kafkas" => Ok(Self::Kafka(Kafka::of(url)?)),
            #[cfg(feature = "sqs")]
            "sqs" => Ok(Self::Sqs(Sqs::of(url)?)),
            other => match HEAVY.iter().find(|(scheme, _)| *scheme == other) {
                Some((_, feature)) => {
                    bail!(
                        "--source {other}:// needs the feature {feature}: cargo run --features {feature} --bin consume"
                    )
                }
                None => bail!(
                    "--source: no broker for `{other}://`; known are rabbitmq://, amqp://, redis-streams://, nats://, tls://, \
                     pgmq://, rocketmq://, kafka://, kafkas:// and sqs://"
                ),
            },
        }
    }

    /// Makes sure that it is there.
    pub(crate) async fn declare(&self) -> anyhow::Result<()> {
        match self {
            Self::RabbitMq(queue) => queue.source().await.map(drop),
            Self::RedisStreams(stream) => stream.source().await.map(drop),
            Self::Nats(stream) => stream.source().await.map(drop),
            Self::Pgmq(queue) => queue.source().await.map(drop),
            #[cfg(feature = "rocketmq")]
            Self::RocketMq(topic) => topic.source().await.map(drop),
            #[cfg(feature = "kafka")]
            Self::Kafka(topic) => topic.declare().await,
            #[cfg(feature = "sqs")]
            Self::Sqs(queue) => queue.source().await.map(drop),
        }
    }

    /// Sends each line that is not blank, and knows that it arrived.
    pub(crate) async fn publish(&self, input: Input, screen: &Screen) -> anyhow::Result<()> {
        let (from, lines) = (input.source.to_string(), outgoing::read(input));
        let sent = match self {
            Self::RabbitMq(queue) => queue.publish(lines).await?,
            Self::RedisStreams(stream) => stream.publish(lines).await?,
            Self::Nats(stream) => stream.publish(lines).await?,
            Self::Pgmq(queue) => queue.publish(lines).await?,
            #[cfg(feature = "rocketmq")]
            Self::RocketMq(topic) => topic.publish(lines).await?,
            #[cfg(feature = "kafka")]
            Self::Kafka(topic) => topic.publish(lines).await?,
            #[cfg(feature = "sqs")]
            Self::Sqs(queue) => queue.publish(lines).await?,
        };
        screen.say(&format!("{sent} messages published from {from} to {self}"));
        Ok(())
    }

    /// Consumes until a stop signal or until no message arrives.
    pub(crate) async fn consume(&self, job: &Arc<Job>, args: &Args, process: &str) -> anyhow::Result<Over> {
        let listening = listen::Listening { job, args, process, from: self.to_string() };
        match self {
            Self::RabbitMq(queue) => listening.run(queue.source().await?, queue.dead_letters()).await,
            Self::RedisStreams(stream) => listening.run(stream.source().await?, stream.dead_letters()).await,
            Self::Nats(stream) => listening.run(stream.source().await?, stream.dead_letters()).await,
            Self::Pgmq(queue) => listening.run(queue.source().await?, queue.dead_letters()).await,
            #[cfg(feature = "rocketmq")]
            Self::RocketMq(topic) => listening.run(topic.source().await?, topic.dead_letters()).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(topic) => {
                let source = topic.source().await?;
                let joined = source.joined();
                listening.run_from(joined, source, topic.dead_letters()).await
            }
            #[cfg(feature = "sqs")]
            Self::Sqs(queue) => listening.run(queue.source().await?, queue.dead_letters()).await,
        }
    }
}

/// Prints the URL without user and password.
impl std::fmt::Display for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RabbitMq(queue) => queue.fmt(f),
            Self::RedisStreams(stream) => stream.fmt(f),
            Self::Nats(stream) => stream.fmt(f),
            Self::Pgmq(queue) => queue.fmt(f),
            #[cfg(feature = "rocketmq")]
            Self::RocketMq(topic) => topic.fmt(f),
            #[cfg(feature = "kafka")]
            Self::Kafka(topic) => topic.fmt(f),
            #[cfg(feature = "sqs")]
            Self::Sqs(queue) => queue.fmt(f),
        }
    }
}

/// An error with those underneath it, in one line.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

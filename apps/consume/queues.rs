//! `--source`: a queue of a real broker. Each broker has its own file.
#[cfg(feature = "kafka")]
mod kafka;
mod listen;
mod nats;
mod outgoing;
mod pgmq;
mod rabbitmq;
mod redis_streams;
#[cfg(feature = "rocketmq")]
mod rocketmq;
#[cfg(feature = "sqs")]
mod sqs;
mod url;

use std::fmt;
use std::sync::Arc;

use ::url::Url;
use anyhow::{anyhow, bail};
use idempotent::mq::{Source, SourceError};

#[cfg(feature = "kafka")]
use self::kafka::Kafka;
use self::listen::Listening;
use self::nats::Nats;
use self::outgoing::Lines;
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

/// Evaluates an expression with the place of a queue, whichever broker it belongs to.
macro_rules! on_each {
    ($queue:expr, $place:ident => $body:expr) => {
        match $queue {
            Queue::RabbitMq($place) => $body,
            Queue::RedisStreams($place) => $body,
            Queue::Nats($place) => $body,
            Queue::Pgmq($place) => $body,
            #[cfg(feature = "rocketmq")]
            Queue::RocketMq($place) => $body,
            #[cfg(feature = "kafka")]
            Queue::Kafka($place) => $body,
            #[cfg(feature = "sqs")]
            Queue::Sqs($place) => $body,
        }
    };
}

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

    /// Creates the queue if it is missing.
    pub(crate) async fn declare(&self) -> anyhow::Result<()> {
        on_each!(self, place => place.declare().await)
    }

    /// Sends each line that is not blank, and waits for the confirmations.
    pub(crate) async fn publish(&self, input: Input, screen: &Screen) -> anyhow::Result<()> {
        let (from, lines) = (input.source.to_string(), outgoing::read(input));
        let sent = on_each!(self, place => place.publish(lines).await?);
        screen.say(&format!("{sent} messages published from {from} to {self}"));
        Ok(())
    }

    /// Consumes until a stop signal or until no message arrives.
    pub(crate) async fn consume(&self, job: &Arc<Job>, args: &Args, process: &str) -> anyhow::Result<Over> {
        let listening = Listening { job, args, process, from: self.to_string() };
        on_each!(self, place => place.consume(listening).await)
    }
}

/// Prints the URL without user and password.
impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        on_each!(self, place => place.at.fmt(f))
    }
}

/// A queue, stream or topic of one broker.
trait Place {
    /// Connects, and creates what is missing.
    async fn source(&self) -> anyhow::Result<impl Source>;

    /// Publishes the lines. Returns the number of confirmed messages.
    async fn publish(&self, lines: Lines) -> anyhow::Result<u64>;

    /// Returns the name of the place of the dead letters.
    fn dead_letters(&self) -> String;

    /// Creates what is missing.
    async fn declare(&self) -> anyhow::Result<()> {
        self.source().await.map(drop)
    }

    async fn consume(&self, listening: Listening<'_>) -> anyhow::Result<Over> {
        listening.run(self.source().await?, self.dead_letters()).await
    }
}

/// The address of a place.
#[derive(Debug)]
struct Address {
    /// The URL with its password.
    url: String,
    /// The URL without user and password.
    shown: String,
    /// `queue`, `stream` or `topic`.
    kind: &'static str,
    name: String,
}

impl Address {
    fn new(url: Url, kind: &'static str, name: String) -> Self {
        Self { shown: url::shown(&url), url: url.into(), kind, name }
    }

    fn unusable(&self, error: &SourceError, hint: &str) -> anyhow::Error {
        anyhow!("cannot use {self}: {}; {hint}", told(error))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} {} at {}", self.kind, self.name, self.shown)
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

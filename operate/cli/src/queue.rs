//! The queue whose dead letters a command works on.
use async_trait::async_trait;
use idempotent::__private::url::masked;
use idempotent::mq::{DeadLetter, DeadLetters, Delivery, SourceError, SourceErrorKind};

use crate::arguments::QueueOptions;
use crate::exit::Failure;
use crate::target::read_url;

/// The dead letters of a queue.
pub(crate) struct Queue {
    pub(crate) letters: Box<dyn DeadLetters>,
    /// The name of the queue and the URL without passwords.
    pub(crate) name: String,
}

const SCHEMES: &str = "amqp://HOST/VHOST for RabbitMQ, redis+stream://HOST for Redis Streams, or redis+delay://HOST for a \
                       delay queue (with amqps, rediss+stream or rediss+delay for TLS)";

/// Opens the dead letters of `--queue` and `--name`. Creates nothing.
pub(crate) async fn open(options: &QueueOptions, namespace: &str) -> anyhow::Result<Queue> {
    let missing = format!("no queue: set IDEMPOTENT_QUEUE, or pass --queue URL: {SCHEMES}");
    let url = read_url(options.queue.as_deref(), &missing)?;
    let shown = masked(&url);
    let usage = |why: &str| anyhow::Error::new(Failure::Usage(format!("--queue `{shown}`: {why}")));
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let letters = match scheme {
        "amqp" | "amqps" => rabbitmq(&url, options).map_err(|why| usage(&why))?,
        "redis+stream" | "rediss+stream" => {
            streams(&url.replacen("+stream", "", 1), options).map_err(|why| usage(&why))?
        }
        _ if scheme == "redis+delay" || scheme == "rediss+delay" || scheme.starts_with("redis+delay+") => {
            delay(&url.replacen("+delay", "", 1), options, namespace).await?
        }
        "redis" | "rediss" => {
            let why = "the scheme does not say which kind of queue it is; use redis+stream:// or redis+delay://";
            return Err(usage(why));
        }
        _ => return Err(usage(&format!("unknown scheme; use {SCHEMES}"))),
    };
    let name = format!("{} on {shown}", options.name);
    let letters = Box::new(Guarded { letters, delivery_limit: options.assume_delivery_limit });
    Ok(Queue { letters, name })
}

#[cfg(feature = "rabbitmq")]
fn rabbitmq(url: &str, options: &QueueOptions) -> Result<Box<dyn DeadLetters>, String> {
    match idempotent::rabbitmq::RabbitDeadLetters::new(url, &options.name) {
        Ok(letters) => Ok(Box::new(letters)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(not(feature = "rabbitmq"))]
fn rabbitmq(_: &str, _: &QueueOptions) -> Result<Box<dyn DeadLetters>, String> {
    Err("this binary was built without RabbitMQ; install it with the feature `rabbitmq`".into())
}

#[cfg(feature = "redis-streams")]
fn streams(url: &str, options: &QueueOptions) -> Result<Box<dyn DeadLetters>, String> {
    let letters = idempotent::redis_streams::StreamsDeadLetters::new(url, options.name.as_str());
    match (letters, &options.dead_stream) {
        (Ok(letters), Some(stream)) => Ok(Box::new(letters.lying_in(stream.as_str()))),
        (Ok(letters), None) => Ok(Box::new(letters)),
        (Err(error), _) => Err(error.to_string()),
    }
}

#[cfg(not(feature = "redis-streams"))]
fn streams(_: &str, _: &QueueOptions) -> Result<Box<dyn DeadLetters>, String> {
    Err("this binary was built without Redis Streams; install it with the feature `redis-streams`".into())
}

#[cfg(feature = "delay")]
async fn delay(url: &str, options: &QueueOptions, namespace: &str) -> anyhow::Result<Box<dyn DeadLetters>> {
    use idempotent::delay_queue::{DelayDeadLetters, DelayQueue};
    use idempotent::mq::DelayErrorKind;

    let queue = DelayQueue::builder(url, &options.name).namespace(namespace).slots(options.slots).allow_eviction(true);
    let queue = queue.connect().await.map_err(|error| {
        let kind = match error.kind() {
            DelayErrorKind::Refused => SourceErrorKind::Fatal,
            _ => SourceErrorKind::Transient,
        };
        SourceError::new(kind, error.to_string())
    })?;
    Ok(Box::new(DelayDeadLetters::new(&queue)))
}

#[cfg(not(feature = "delay"))]
async fn delay(_: &str, _: &QueueOptions, _: &str) -> anyhow::Result<Box<dyn DeadLetters>> {
    let why = "this binary was built without delay queues; install it with the feature `delay`";
    Err(Failure::Usage(why.into()).into())
}

/// Dead letters of a broker that drops a letter that was read too often.
struct Guarded {
    letters: Box<dyn DeadLetters>,
    delivery_limit: u32,
}

#[async_trait]
impl DeadLetters for Guarded {
    async fn count(&mut self) -> Result<u64, SourceError> {
        self.letters.count().await
    }

    async fn next(&mut self) -> Result<Option<(Delivery, Option<DeadLetter>)>, SourceError> {
        let next = self.letters.next().await?;
        let read = next.as_ref().and_then(|(delivery, _)| delivery.delivered).unwrap_or_default();
        if read <= self.delivery_limit / 2 {
            return Ok(next);
        }
        let why = format!(
            "a dead letter was read {read} times, and the queue may drop it after {}: look up its delivery limit, and pass \
             it by --assume-delivery-limit",
            self.delivery_limit
        );
        Err(SourceError::new(SourceErrorKind::Fatal, why.as_str()).with_cause(Failure::Refused(why)))
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        self.letters.put_back().await
    }

    async fn close(&mut self) {
        self.letters.close().await;
    }
}

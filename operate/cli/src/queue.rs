//! The queue whose dead letters a command works on.
use anyhow::Context;
use idempotent::__private::url::masked;
use idempotent::mq::{DeadLetters, SourceError, SourceErrorKind, UrlForm};
use idempotent_operate::DeliveryLimited;

use crate::arguments::{PutBackOptions, QueueOptions};
use crate::backend::Backend;
use crate::failure::Failure;
use crate::finding::{Finding, Severity};
use crate::target::read_url;

/// The dead letters of a queue.
pub(crate) struct Queue {
    pub(crate) letters: Box<dyn DeadLetters>,
    /// The name of the queue and the URL without passwords.
    pub(crate) name: String,
}

/// The forms of the URLs of the brokers in this build.
const FORMS: &[UrlForm] = &[
    #[cfg(feature = "rabbitmq")]
    idempotent::rabbitmq::URL_FORM,
    #[cfg(feature = "redis-streams")]
    STREAMS,
    #[cfg(feature = "nats")]
    idempotent::nats::URL_FORM,
    #[cfg(feature = "pgmq")]
    idempotent::pgmq::URL_FORM,
    #[cfg(feature = "kafka")]
    idempotent::kafka::URL_FORM,
    #[cfg(feature = "sqs")]
    idempotent::sqs::URL_FORM,
    #[cfg(feature = "rocketmq")]
    idempotent::rocketmq::URL_FORM,
];

/// The form of the URL of a stream, whose scheme distinguishes it from a delay queue.
#[cfg(feature = "redis-streams")]
const STREAMS: UrlForm = UrlForm {
    schemes: &["redis+stream", "rediss+stream"],
    tls: Some("rediss+stream"),
    form: "redis+stream://[USER:PASSWORD@]HOST[:PORT][/DB]",
    ..idempotent::redis_streams::URL_FORM
};

/// The URLs of delay queues and delay tables.
const DELAYS: &str = "redis+delay://HOST or rediss+delay://HOST for a delay queue, postgres://HOST/DATABASE, mysql://HOST/DATABASE or \
                      sqlite:PATH for a delay table";

/// Returns the forms of the URLs, with their parameters, for a help text.
pub(crate) fn help() -> String {
    let forms: Vec<_> = FORMS.iter().map(UrlForm::help).collect();
    format!("URLs of queues:\n{}\n  Delays: {DELAYS}", forms.join("\n"))
}

/// Returns the forms of the URLs, for an error text.
fn forms() -> String {
    let brokers = FORMS.iter().map(|form| format!("{} for {}, ", form.form, form.broker));
    format!("{}{DELAYS}", brokers.collect::<String>())
}

/// The schemes of the queues whose letters can be put back into another queue.
const NAMES_A_TARGET: [&str; 10] =
    ["amqp", "amqps", "kafka", "kafkas", "nats", "pgmq", "rocketmq", "rocketmqs", "sqs", "tls"];

/// The brokers that a build may lack: their schemes, names and features.
const OPTIONAL: [(&[&str], &str, &str); 8] = [
    (&["amqp", "amqps"], "RabbitMQ", "rabbitmq"),
    (&["redis+stream", "rediss+stream"], "Redis Streams", "redis-streams"),
    (&["nats", "tls"], "NATS", "nats"),
    (&["pgmq"], "PGMQ", "pgmq"),
    (&["kafka"], "Kafka", "kafka"),
    (&["kafkas"], "Kafka", "kafka-tls"),
    (&["sqs"], "Amazon SQS", "sqs"),
    (&["rocketmq", "rocketmqs"], "RocketMQ", "rocketmq"),
];

/// Returns the error for a scheme that this build cannot open.
fn without(scheme: &str) -> String {
    match OPTIONAL.iter().find(|(schemes, ..)| schemes.contains(&scheme)) {
        Some((_, broker, feature)) => {
            format!("this binary was built without {broker}; install it with the feature `{feature}`")
        }
        None => {
            let known = OPTIONAL.iter().flat_map(|(schemes, ..)| *schemes);
            let known = known.chain(&["redis+delay", "rediss+delay", "postgres", "mysql", "sqlite"]);
            match known.map(|known| (strsim::osa_distance(known, scheme), known)).min() {
                Some((distance, near)) if distance <= 2 => format!("unknown scheme; did you mean `{near}`?"),
                _ => format!("unknown scheme; use {}", forms()),
            }
        }
    }
}

/// The dead letters of a broker, or the reason for which the arguments do not name any.
type Letters = Result<Box<dyn DeadLetters>, String>;

/// Opens the dead letters of `--queue` and `--name`. Creates nothing.
pub(crate) async fn open(options: &QueueOptions, back: &PutBackOptions, namespace: &str) -> anyhow::Result<Queue> {
    let missing = format!("no queue: set IDEMPOTENT_QUEUE, or pass --queue URL: {}", forms());
    let url = read_url(options.queue.as_deref(), &missing)?;
    let shown = masked(&url);
    let usage = |why: &str| anyhow::Error::new(Failure::Usage(format!("--queue `{shown}`: {why}")));
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if back.to.is_some() && !NAMES_A_TARGET.contains(&scheme) {
        return Err(usage(
            "--to: dead letters of Redis Streams, delay queues and delay tables return only to their origin",
        ));
    }
    if back.without_unreadable_headers && !matches!(scheme, "kafka" | "kafkas") {
        return Err(usage("--without-unreadable-headers: only letters of Kafka have such headers"));
    }
    let of_broker: Option<Letters> = match scheme {
        #[cfg(feature = "rabbitmq")]
        "amqp" | "amqps" => Some(rabbitmq(&url, options, back)),
        #[cfg(feature = "redis-streams")]
        "redis+stream" | "rediss+stream" => Some(streams(&url, options)),
        #[cfg(feature = "nats")]
        "nats" | "tls" => Some(nats(&url, options, back)),
        #[cfg(feature = "pgmq")]
        "pgmq" => Some(pgmq(&url, options, back)),
        #[cfg(feature = "kafka")]
        "kafka" | "kafkas" => Some(kafka(&url, options, back)),
        #[cfg(feature = "sqs")]
        "sqs" => Some(sqs(&url, options, back)),
        #[cfg(feature = "rocketmq")]
        "rocketmq" | "rocketmqs" => Some(rocketmq(&url, options, back)),
        _ => None,
    };
    let letters = match of_broker {
        Some(letters) => letters.map_err(|why| usage(&why))?,
        None if is_delay_queue(scheme) => delay(&url, options, namespace).await?,
        None if matches!(scheme, "redis" | "rediss") => {
            let why = "the scheme does not say which kind of queue it is; use redis+stream:// or redis+delay://";
            return Err(usage(why));
        }
        None if Backend::of(&url).is_some_and(|backend| !matches!(backend, Backend::Redis | Backend::Tiered)) => {
            table(&url, options).await.with_context(|| format!("{} on {shown}", options.name))?
        }
        None => return Err(usage(&without(scheme))),
    };
    let name = match &options.group {
        Some(group) => format!("{} of {group} on {shown}", options.name),
        None => format!("{} on {shown}", options.name),
    };
    let letters = Box::new(DeliveryLimited::new(letters, options.assume_delivery_limit));
    Ok(Queue { letters, name })
}

/// Checks that a broker blocks no publishers.
pub(crate) async fn alarm(queue: &str) -> anyhow::Result<Finding> {
    let url = read_url(Some(queue), "")?;
    let server = masked(&url);
    let usage = |why: &str| anyhow::Error::new(Failure::Usage(format!("--queue `{server}`: {why}")));
    if !url.starts_with("amqp://") && !url.starts_with("amqps://") {
        return Err(usage("only RabbitMQ has alarms to check; use amqp://HOST/VHOST, or amqps:// for TLS"));
    }
    let (severity, text) = match blocked(&url).await.map_err(|why| usage(&why))?? {
        None => (Severity::Ok, "the broker accepts messages".to_owned()),
        Some(reason) => {
            let remedy = match reason.contains("disk") {
                true => "free disk space, or lower `disk_free_limit`",
                false => "let consumers empty the queues, or raise `vm_memory_high_watermark`",
            };
            (
                Severity::Fail,
                format!("the broker blocks publishers ({reason}), so retries and dead letters wait: {remedy}"),
            )
        }
    };
    Ok(Finding { severity, check: "alarm", server: server.into(), text })
}

/// Returns the broker's reason for blocking publishers. The outer error is one of the URL.
async fn blocked(url: &str) -> Result<Result<Option<String>, SourceError>, String> {
    #[cfg(not(feature = "rabbitmq"))]
    return Err(without(url.split(':').next().unwrap_or_default()));
    #[cfg(feature = "rabbitmq")]
    {
        let publisher =
            idempotent::rabbitmq::RabbitPublisher::builder(url).build().map_err(|error| error.to_string())?;
        let answer = publisher.blocked().await;
        Ok(answer.map_err(|error| SourceError::new(SourceErrorKind::Transient, error.to_string()).with_cause(error)))
    }
}

#[cfg(feature = "rabbitmq")]
fn rabbitmq(url: &str, options: &QueueOptions, back: &PutBackOptions) -> Letters {
    let letters = idempotent::rabbitmq::RabbitDeadLetters::new(url, &options.name);
    let letters = letters.and_then(|letters| match &back.to {
        Some(queue) => letters.putting_back_to(queue.as_str()),
        None => Ok(letters),
    });
    Ok(Box::new(letters.map_err(|error| error.to_string())?))
}

#[cfg(feature = "redis-streams")]
fn streams(url: &str, options: &QueueOptions) -> Letters {
    // The error of the adapter would name its own scheme.
    STREAMS.parse(url).map_err(|error| error.rule().to_owned())?;
    let url = url.replacen("+stream", "", 1);
    let letters = idempotent::redis_streams::StreamsDeadLetters::new(&url, options.name.as_str());
    let letters = letters.map_err(|error| error.to_string())?;
    Ok(match &options.dead_stream {
        Some(stream) => Box::new(letters.lying_in(stream.as_str())),
        None => Box::new(letters),
    })
}

/// Boxes letters with the places that the options name. The types of the brokers share no trait for these places.
#[cfg(any(feature = "kafka", feature = "nats", feature = "pgmq", feature = "sqs"))]
macro_rules! placed {
    ($letters:expr, $options:expr, $back:expr) => {{
        let mut letters = $letters;
        if let Some(to) = &$back.to {
            letters = letters.putting_back_to(to.as_str());
        }
        if let Some(place) = &$options.dead_stream {
            letters = letters.stored_in(place.as_str());
        }
        Box::new(letters)
    }};
}

#[cfg(feature = "nats")]
fn nats(url: &str, options: &QueueOptions, back: &PutBackOptions) -> Letters {
    let letters = idempotent::nats::JetStreamDeadLetters::new(url, &options.name);
    Ok(placed!(letters, options, back))
}

#[cfg(feature = "pgmq")]
fn pgmq(url: &str, options: &QueueOptions, back: &PutBackOptions) -> Letters {
    let letters = idempotent::pgmq::PgmqDeadLetters::new(url, &options.name);
    Ok(placed!(letters, options, back))
}

#[cfg(feature = "kafka")]
fn kafka(url: &str, options: &QueueOptions, back: &PutBackOptions) -> Letters {
    let mut letters = idempotent::kafka::KafkaDeadLetters::new(url, &options.name);
    if back.without_unreadable_headers {
        letters = letters.without_unreadable_headers();
    }
    Ok(placed!(letters, options, back))
}

#[cfg(feature = "sqs")]
fn sqs(url: &str, options: &QueueOptions, back: &PutBackOptions) -> Letters {
    let client = idempotent::sqs::client(url).map_err(|error| error.to_string())?;
    let letters = idempotent::sqs::SqsDeadLetters::new(client, &options.name);
    Ok(placed!(letters, options, back))
}

#[cfg(feature = "rocketmq")]
fn rocketmq(url: &str, options: &QueueOptions, back: &PutBackOptions) -> Letters {
    use idempotent::rocketmq::RocketDeadLetters;

    let group = options.group.as_deref().ok_or("name the consumer group of the topic by --group")?;
    let mut letters = RocketDeadLetters::builder(url, options.name.as_str(), group);
    if let Some(topic) = &options.dead_stream {
        letters = letters.dead_letter_topic(topic.as_str());
    }
    if let Some(to) = &back.to {
        letters = letters.putting_back_to(to.as_str());
    }
    Ok(Box::new(letters.build().map_err(|error| error.to_string())?))
}

/// Returns true for the scheme of a delay queue on Redis.
pub(crate) fn is_delay_queue(scheme: &str) -> bool {
    scheme == "redis+delay" || scheme == "rediss+delay" || scheme.starts_with("redis+delay+")
}

/// Opens a delay queue by its URL, its topic and its number of slots.
#[cfg(feature = "delay")]
pub(crate) async fn delay_queue(
    url: &str,
    (topic, slots): (&str, u16),
    namespace: &str,
) -> Result<idempotent::delay_queue::DelayQueue, SourceError> {
    let url = url.replacen("+delay", "", 1);
    let queue = idempotent::delay_queue::DelayQueue::builder(&url, topic).namespace(namespace).slots(slots);
    queue.allow_eviction(true).connect().await.map_err(delay_error)
}

/// Converts an error of a delay queue or delay table, for its exit code.
pub(crate) fn delay_error(error: idempotent::mq::DelayError) -> SourceError {
    let kind = match error.kind() {
        idempotent::mq::DelayErrorKind::Refused => SourceErrorKind::Fatal,
        _ => SourceErrorKind::Transient,
    };
    SourceError::new(kind, error.to_string())
}

async fn delay(url: &str, options: &QueueOptions, namespace: &str) -> anyhow::Result<Box<dyn DeadLetters>> {
    #[cfg(not(feature = "delay"))]
    {
        let _ = (url, options, namespace);
        let why = "this binary was built without delay queues; install it with the feature `delay`";
        Err(Failure::Usage(why.into()).into())
    }
    #[cfg(feature = "delay")]
    {
        let queue = delay_queue(url, (&options.name, options.slots), namespace).await?;
        Ok(Box::new(idempotent::delay_queue::DelayDeadLetters::new(&queue)))
    }
}

async fn table(url: &str, options: &QueueOptions) -> anyhow::Result<Box<dyn DeadLetters>> {
    #[cfg(not(feature = "database"))]
    {
        let _ = (url, options);
        let why = "this binary was built without databases; install it with `postgres`, `mysql` or `sqlite`";
        Err(Failure::Usage(why.into()).into())
    }
    #[cfg(feature = "database")]
    {
        use idempotent::delay::{DelayDb, DelayTable, DelayTableDeadLetters};
        use idempotent::sqlx::Pool;

        use crate::database::{self, Database};

        async fn letters<Db: DelayDb>(pool: Pool<Db>, name: &str) -> anyhow::Result<Box<dyn DeadLetters>> {
            let table = DelayTable::builder(pool).table(name).open().await?;
            Ok(Box::new(DelayTableDeadLetters::new(&table)))
        }
        database::check_table(&options.name)?;
        match database::connect(url).await? {
            #[cfg(feature = "mysql")]
            Database::MySql(pool) => letters(pool, &options.name).await,
            #[cfg(feature = "postgres")]
            Database::Postgres(pool) => letters(pool, &options.name).await,
            #[cfg(feature = "sqlite")]
            Database::Sqlite(pool) => letters(pool, &options.name).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_queues_have_schemes_of_their_own() {
        for scheme in ["redis+delay", "rediss+delay", "redis+delay+sentinel"] {
            assert!(is_delay_queue(scheme), "{scheme}");
        }
        for scheme in ["redis", "redis+stream", "redis+delays", "pgmq"] {
            assert!(!is_delay_queue(scheme), "{scheme}");
        }
    }
}

//! Streams and consumers that are created or opened.
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{self, ConsumerErrorKind, Stream};
use idempotent_mq::SourceError;

use crate::connection::Connection;
use crate::error::{fatal, jetstream_failure, unanswered};

/// The position of the first message of a new consumer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum StartPosition {
    /// The first message that the stream contains.
    Beginning,
    /// The first message after the creation of the consumer.
    New,
}

/// Opens a stream.
pub(crate) async fn existing_stream(connection: &Connection, name: &str) -> Result<Stream, SourceError> {
    let doing = format!("opening the stream `{name}`");
    connection.jetstream.get_stream(name).await.map_err(|error| match error.kind() {
        GetStreamErrorKind::JetStream(refusal) => jetstream_failure(&doing, &refusal),
        _ => unanswered(&doing, error),
    })
}

/// Opens a stream, or creates it if it does not exist.
pub(crate) async fn create_stream(connection: &Connection, config: stream::Config) -> Result<Stream, SourceError> {
    let doing = format!("creating the stream `{}`", config.name);
    connection.jetstream.get_or_create_stream(config).await.map_err(|error| match error.kind() {
        CreateStreamErrorKind::JetStream(refusal) => jetstream_failure(&doing, &refusal),
        _ => unanswered(&doing, error),
    })
}

/// Creates the stream of the dead letters if it does not exist.
pub(crate) async fn create_dead_letters(
    connection: &Connection,
    name: &str,
    replicas: usize,
) -> Result<Stream, SourceError> {
    let config = stream::Config {
        name: name.to_owned(),
        subjects: vec![dead_subject_of(name)],
        num_replicas: replicas,
        // Other programs would lose repeated headers of messages that they read in another way.
        allow_direct: true,
        ..stream::Config::default()
    };
    create_stream(connection, config).await
}

/// Returns the subject of a stream of dead letters that the adapter creates.
pub(crate) fn dead_subject_of(name: &str) -> String {
    format!("idempotent.dead.{name}")
}

/// Opens a consumer, or creates it if it does not exist.
pub(crate) async fn create_consumer(
    stream: &Stream,
    name: &str,
    config: pull::Config,
) -> Result<PullConsumer, SourceError> {
    let doing = format!("creating the consumer `{name}`");
    stream.get_or_create_consumer(name, config).await.map_err(|error| match error.kind() {
        ConsumerErrorKind::JetStream(refusal) => jetstream_failure(&doing, &refusal),
        ConsumerErrorKind::InvalidConsumerType => push_consumer(&doing),
        _ => unanswered(&doing, error),
    })
}

/// Opens a consumer.
pub(crate) async fn existing_consumer(stream: &Stream, name: &str) -> Result<PullConsumer, SourceError> {
    let doing = format!("opening the consumer `{name}`");
    // Opening fails without a typed reason, and a request for the information has one.
    match stream.consumer_info(name).await {
        Ok(_) => stream.get_consumer(name).await.map_err(|_| push_consumer(&doing)),
        Err(error) => Err(match error.kind() {
            ConsumerInfoErrorKind::JetStream(refusal) => jetstream_failure(&doing, &refusal),
            ConsumerInfoErrorKind::NotFound => {
                fatal(&doing, "it does not exist; create it by `declare` on the builder, or by `nats consumer add`")
            }
            _ => unanswered(&doing, error),
        }),
    }
}

fn push_consumer(doing: &str) -> SourceError {
    fatal(doing, "it is a push consumer; create a pull consumer")
}

//! Producing of messages that all replicas confirm.
use std::fmt;
use std::time::Duration;

use idempotent_mq::{PublishError, SourceError};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use rdkafka::producer::future_producer::Delivery;
use rdkafka::producer::{FutureProducer, FutureRecord};

use crate::KafkaOptions;
use crate::error::{failure, publish_failure};
use crate::message::Copy;

/// A client that produces messages.
pub(crate) struct Producer(Option<FutureProducer<QuietContext>>);

/// A context that reports errors at the debug level, since each call returns its own error.
#[derive(Debug)]
pub(crate) struct QuietContext;

impl ClientContext for QuietContext {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, text: &str) {
        tracing::debug!(target: "idempotent", facility, text, "kafka client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "idempotent", %error, reason, "kafka client");
    }
}

impl ConsumerContext for QuietContext {}

impl Producer {
    /// Creates a client, which connects at once and in the background.
    ///
    /// # Errors
    /// An option is invalid.
    pub(crate) fn new(options: &KafkaOptions) -> Result<Self, SourceError> {
        let created = options.producer()?.create_with_context(QuietContext);
        created.map(|producer| Self(Some(producer))).map_err(|error| failure("configuring the client", error))
    }

    /// Produces a message, and returns its partition and offset once all replicas have confirmed the message.
    ///
    /// # Cancellation
    /// The message may have been sent.
    pub(crate) async fn confirmed(&self, topic: &str, copy: Copy) -> Result<Delivery, PublishError> {
        let mut record = FutureRecord::<[u8], [u8]>::to(topic).headers(copy.headers);
        (record.key, record.payload, record.partition) = (copy.key.as_deref(), copy.body.as_deref(), copy.partition);
        // The producer is only missing while it is dropped.
        let Some(producer) = &self.0 else { return Err(PublishError::kept_back()) };
        let sent = producer.send(record, Duration::ZERO).await;
        sent.map_err(|(error, _)| publish_failure(topic, error))
    }
}

/// Ends the client on another thread, because the end takes up to half a second.
impl Drop for Producer {
    fn drop(&mut self) {
        let producer = self.0.take();
        std::thread::spawn(move || drop(producer));
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

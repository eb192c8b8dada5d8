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

use crate::connection_error::{ConnectionError, KeepsError};
use crate::error::{failure, publish_failure};
use crate::message::Copy;
use crate::options::{self, Server};

/// A client that produces messages.
pub(crate) struct Producer(Option<FutureProducer<QuietContext>>, ConnectionError);

/// A context that reports errors at the debug level, since each call returns its own error.
#[derive(Debug, Default)]
pub(crate) struct QuietContext(ConnectionError);

impl ClientContext for QuietContext {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, text: &str) {
        tracing::debug!(target: "idempotent", facility, text, "kafka client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.note(&error, reason);
        tracing::debug!(target: "idempotent", %error, reason, "kafka client");
    }
}

impl ConsumerContext for QuietContext {}

impl KeepsError for QuietContext {
    fn connection_error(&self) -> &ConnectionError {
        &self.0
    }
}

impl Producer {
    /// Creates a client, which connects at once and in the background.
    ///
    /// # Errors
    /// The URL is invalid.
    pub(crate) fn new(server: &Server) -> Result<Self, SourceError> {
        let last = ConnectionError::default();
        let created = options::producer(server)?.create_with_context(QuietContext(last.clone()));
        created.map(|producer| Self(Some(producer), last)).map_err(|error| failure("configuring the client", error))
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
        if sent.is_ok() {
            self.1.clear();
        }
        sent.map_err(|(error, _)| publish_failure(topic, error, self.1.explain().map(|(_, text)| text)))
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

//! A guard for dead letters of a broker that drops a message after a number of deliveries.
use std::fmt;

use async_trait::async_trait;
use idempotent_mq::{DeadLetters, SourceError, SourceErrorKind, StoredLetter};

/// The error of a dead letter that was read so often that its broker may drop it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a dead letter was read {read} times, and the queue may drop it after {limit}: look up its delivery limit")]
#[non_exhaustive]
pub struct DeliveryLimitError {
    /// The number of deliveries so far.
    pub read: u32,
    /// The assumed limit.
    pub limit: u32,
}

/// Dead letters of a broker that drops a letter that was read too often. Reading ends at half the limit.
pub struct DeliveryLimited {
    letters: Box<dyn DeadLetters>,
    limit: u32,
}

impl fmt::Debug for DeliveryLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryLimited").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl DeliveryLimited {
    /// The delivery limit of quorum queues in RabbitMQ 4 without an own limit.
    pub const RABBITMQ: u32 = 20;

    /// Wraps the dead letters of a queue whose broker drops a message after `limit` deliveries.
    #[must_use]
    pub fn new(letters: Box<dyn DeadLetters>, limit: u32) -> Self {
        Self { letters, limit }
    }
}

#[async_trait]
impl DeadLetters for DeliveryLimited {
    async fn count(&mut self) -> Result<u64, SourceError> {
        self.letters.count().await
    }

    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        let next = self.letters.next().await?;
        let read = next.as_ref().and_then(|letter| letter.delivery.delivered).unwrap_or_default();
        if read <= self.limit / 2 {
            return Ok(next);
        }
        let error = DeliveryLimitError { read, limit: self.limit };
        Err(SourceError::new(SourceErrorKind::Fatal, error.to_string()).with_cause(error))
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        self.letters.put_back().await
    }

    async fn discard(&mut self) -> Result<bool, SourceError> {
        self.letters.discard().await
    }

    async fn close(&mut self) {
        self.letters.close().await;
    }
}

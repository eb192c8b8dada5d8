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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{Arc, Mutex};

    use idempotent_mq::{Delivery, Position};

    use super::*;

    /// Letters that were read this often, and the calls of their handle.
    struct Read(u32, Arc<Mutex<Vec<&'static str>>>);

    impl Read {
        fn call(&self, name: &'static str) {
            self.1.lock().unwrap().push(name);
        }
    }

    #[async_trait]
    impl DeadLetters for Read {
        async fn count(&mut self) -> Result<u64, SourceError> {
            self.call("count");
            Ok(3)
        }
        async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
            let mut delivery = Delivery::new(Position::of("orders"), Vec::new());
            delivery.delivered = Some(self.0);
            Ok(Some(StoredLetter::at("1", delivery, None)))
        }
        async fn put_back(&mut self) -> Result<bool, SourceError> {
            self.call("put_back");
            Ok(true)
        }
        async fn discard(&mut self) -> Result<bool, SourceError> {
            self.call("discard");
            Ok(true)
        }
        async fn close(&mut self) {
            self.call("close");
        }
    }

    #[tokio::test]
    async fn letters_are_read_up_to_half_the_limit_and_all_else_is_passed_on() {
        let calls = Arc::<Mutex<Vec<_>>>::default();
        let limited = |read| DeliveryLimited::new(Box::new(Read(read, calls.clone())), 20);
        assert!(limited(10).next().await.unwrap().is_some());
        let error = limited(11).next().await.unwrap_err();
        assert!(error.to_string().contains("read 11 times") && error.to_string().contains("after 20"), "{error}");
        let mut letters = limited(0);
        assert_eq!(letters.count().await.unwrap(), 3);
        assert!(letters.put_back().await.unwrap() && letters.discard().await.unwrap());
        letters.close().await;
        assert_eq!(*calls.lock().unwrap(), ["count", "put_back", "discard", "close"]);
    }
}

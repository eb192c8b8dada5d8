//! The marks of retried messages: the data of the next delivery, which a message of a stream cannot store.
use std::time::Duration;

use async_nats::jetstream::kv;
use idempotent_core::Timestamp;
use idempotent_mq::{Retry, SourceError};

use crate::connection::Connection;
use crate::error::{fatal, transient};
use crate::number::MessageNumber;

/// The data of a message that is retried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RetryMark {
    /// The number of the next attempt.
    pub(crate) attempt: u32,
    /// The time of the first delivery.
    pub(crate) first_at: Timestamp,
    /// The number of deliveries that ended by a retry. The server counts them like deliveries that end by a crash.
    pub(crate) retried: u32,
}

impl RetryMark {
    /// Creates the mark of a retry, after this number of earlier ones.
    pub(crate) fn of(retry: &Retry, retried: u32) -> Self {
        Self { attempt: retry.attempt, first_at: retry.first_at, retried: retried.saturating_add(1) }
    }

    /// Parses the value of a bucket. A message without a valid mark is a first attempt.
    fn parse(value: &[u8]) -> Option<Self> {
        let mut fields = std::str::from_utf8(value).ok()?.split(' ');
        let mut next = || fields.next();
        let (attempt, first_at, retried) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
        next().is_none().then_some(Self { attempt, first_at: Timestamp(first_at), retried })
    }

    fn value(self) -> String {
        format!("{} {} {}", self.attempt, self.first_at.0, self.retried)
    }
}

/// The lifetime of a mark. A message whose mark is lost starts again with its first attempt.
const LIFETIME: Duration = Duration::from_secs(7 * 86_400);

/// The key-value bucket with the marks of a consumer, by the numbers of the messages.
#[derive(Clone, Debug)]
pub(crate) struct RetryMarks(kv::Store);

impl RetryMarks {
    /// Opens the bucket of a consumer, or creates the bucket with this number of replicas.
    ///
    /// # Errors
    /// - `Fatal`: the bucket does not exist.
    /// - `Transient`: the server does not answer.
    pub(crate) async fn open(
        connection: &Connection,
        stream: &str,
        consumer: &str,
        create: Option<usize>,
    ) -> Result<Self, SourceError> {
        let bucket = format!("idempotent-{stream}-{consumer}");
        match connection.jetstream.get_key_value(&bucket).await {
            Ok(store) => return Ok(Self(store)),
            Err(error) if create.is_none() => {
                let remedy = format!(
                    "the key-value bucket `{bucket}` for the attempts of retried messages is missing; create it by `declare` on \
                     the builder, or by `nats kv add {bucket} --ttl 168h`"
                );
                return Err(fatal("opening the retry marks", &remedy).with_cause(error));
            }
            Err(_) => {}
        }
        let config =
            kv::Config { bucket, max_age: LIFETIME, num_replicas: create.unwrap_or(1), ..kv::Config::default() };
        let made = connection.jetstream.create_key_value(config).await;
        made.map(Self).map_err(|error| transient("creating the bucket of the retry marks", error))
    }

    /// Returns the mark of a message.
    pub(crate) async fn get(&self, message: MessageNumber) -> Result<Option<RetryMark>, SourceError> {
        let found = self.0.get(message.to_string()).await;
        let value = found.map_err(|error| transient("reading a retry mark", error))?;
        Ok(value.and_then(|value| RetryMark::parse(&value)))
    }

    pub(crate) async fn put(&self, message: MessageNumber, mark: RetryMark) -> Result<(), SourceError> {
        let put = self.0.put(message.to_string(), mark.value().into()).await;
        put.map(drop).map_err(|error| transient("writing a retry mark", error))
    }

    /// Removes the mark of a settled message. A mark that remains after an error expires.
    pub(crate) async fn remove(&self, message: MessageNumber) {
        // Not `Store::delete`, which leaves a marker for each key.
        let subject = format!("{}{message}", self.0.prefix);
        if let Err(error) = self.0.stream.purge().filter(subject).await {
            tracing::debug!(target: "idempotent", %error, "a retry mark remains until it expires");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_another_value_is_no_mark() {
        let mark = RetryMark { attempt: 70_000, first_at: Timestamp(u64::MAX), retried: u32::MAX };
        assert_eq!(RetryMark::parse(mark.value().as_bytes()), Some(mark));
        for value in [&b""[..], b"2", b"2 3", b"2 x 3", b"x 2 3", b"-1 2 3", b"4294967296 2 3", b"\xff 2 3", b"1 2 3 4"]
        {
            assert_eq!(RetryMark::parse(value), None, "{value:?}");
        }
    }
}

//! The marks of retried messages: the number of the next attempt, which a message of a stream cannot store.
use std::time::Duration;

use async_nats::jetstream::kv;
use idempotent_core::Timestamp;
use idempotent_mq::{Retry, SourceError};

use crate::connection::Connection;
use crate::error::{fatal, transient};
use crate::number::MessageNumber;

/// The attempt and the first delivery of a message that is retried. A message without a failed attempt has no mark.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RetryMark {
    pub(crate) attempt: u32,
    pub(crate) first_at: Timestamp,
}

impl RetryMark {
    /// Returns the mark of a retry, or `None` for a deferral before the first failure.
    pub(crate) fn of(retry: &Retry) -> Option<Self> {
        (retry.attempt > 1).then_some(Self { attempt: retry.attempt, first_at: retry.first_at })
    }

    /// Parses the value of a bucket. A message without a valid mark is a first attempt.
    fn parse(value: &[u8]) -> Option<Self> {
        let (attempt, first_at) = std::str::from_utf8(value).ok()?.split_once(' ')?;
        Some(Self { attempt: attempt.parse().ok()?, first_at: Timestamp(first_at.parse().ok()?) })
    }

    fn value(self) -> String {
        format!("{} {}", self.attempt, self.first_at.0)
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
        let mark = RetryMark { attempt: 70_000, first_at: Timestamp(u64::MAX) };
        assert_eq!(RetryMark::parse(mark.value().as_bytes()), Some(mark));
        for value in [&b""[..], b"2", b"2 x", b"x 2", b"-1 2", b"4294967296 2", b"\xff 2"] {
            assert_eq!(RetryMark::parse(value), None, "{value:?}");
        }
    }

    #[test]
    fn only_a_failed_attempt_has_a_mark() {
        let mut retry = Retry::after(Duration::ZERO, Timestamp(5));
        assert_eq!(RetryMark::of(&retry), Some(RetryMark { attempt: 2, first_at: Timestamp(5) }));
        retry.attempt = 1;
        assert_eq!(RetryMark::of(&retry), None);
    }
}

//! A key-value bucket as the backend of a store.
use std::fmt;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use async_nats::jetstream::{self, ErrorCode, context::PublishError};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idempotent_core::protocol::CAS_MARGIN;
use idempotent_core::{CasBackend, Key, Record, StoreError, StoreErrorKind, Timestamp, Version, VersionedRecord};
use serde::Deserialize;

use crate::bucket::{create_bucket, open_bucket, unopened};
use crate::connection::Connection;
use crate::error::{is_undecided, refusal};
use crate::options::Server;

/// A key-value bucket of NATS JetStream as the backend of a store.
///
/// [`Cas`](idempotent_core::Cas) turns the backend into a [`Store`](idempotent_core::Store), for services that run NATS and no
/// database:
///
/// ```no_run
/// use idempotent_core::{Cas, Executor};
/// use idempotent_nats::KvBackend;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = KvBackend::create("nats://127.0.0.1", "idempotent", 3).await?;
/// let executor = Executor::new(Cas(backend));
/// # drop(executor);
/// # Ok(())
/// # }
/// ```
///
/// - **Records.** The name of a value is the hash of its key. A claim and a completion take two round trips each: the record is read
///   together with the time, and a write expects the revision that was read. The server removes a record one hour after its expiry, by the TTL of its message.
/// - **Time.** Leases expire by the clock of the server that leads the bucket's stream. Synchronize the clocks of a cluster: after a
///   change of the leader, leases expire earlier or later by the difference.
/// - **Durability.** A server writes to its disk every two minutes by default, so a server that loses its power loses confirmed
///   records. Use three replicas, or set `sync_interval: always`. During the election of a new leader, which takes some seconds, calls fail
///   and are repeated.
/// - **Limits.** A record with its result must fit into one message: 1 MiB by default (`max_payload`). A listing of keys, steps,
///   orderings and batches are not available.
///
/// Requires NATS 2.11 or later.
#[derive(Clone)]
pub struct KvBackend {
    connection: Connection,
    stream: Stream,
    bucket: Box<str>,
}

/// The last message of a subject.
struct LastMessage {
    sequence: Version,
    /// The record, or `None` if the message marks a deletion.
    record: Option<Record>,
}

/// The part of a stream's information that contains the server's time.
#[derive(Deserialize)]
struct ServerTime {
    ts: String,
}

/// The header of a deletion, as other clients of key-value buckets write it.
const OPERATION: &str = "KV-Operation";
/// The header of a marker that the server writes.
const MARKER: &str = "Nats-Marker-Reason";
/// The longest TTL. A record that lives longer is never removed.
const LONGEST_TTL: Duration = Duration::from_secs(100 * 365 * 86_400);

impl KvBackend {
    /// Opens an existing bucket. [`URL_FORM`](crate::URL_FORM) is the form of the URL.
    ///
    /// # Errors
    /// - [`Schema`](StoreErrorKind::Schema): the URL, the credentials or the name are wrong, the bucket does not exist, or its
    ///   settings would lose records.
    /// - [`NotApplied`](StoreErrorKind::NotApplied): the server cannot be reached.
    ///
    /// # Cancellation
    /// The call only reads, so a drop has no effect.
    pub async fn open(server: impl Into<Server>, bucket: &str) -> Result<Self, StoreError> {
        let connection = Connection::open(&server.into()).await.map_err(unopened)?;
        let stream = open_bucket(&connection, bucket).await?;
        Ok(Self { connection, stream, bucket: bucket.into() })
    }

    /// Opens a bucket, and creates it if it does not exist, with this number of replicas: 1, 3 or 5. The number of an existing
    /// bucket stays.
    ///
    /// # Errors
    /// Same as [`open`](Self::open).
    ///
    /// # Cancellation
    /// The bucket may be created.
    pub async fn create(server: impl Into<Server>, bucket: &str, replicas: usize) -> Result<Self, StoreError> {
        let connection = Connection::open(&server.into()).await.map_err(unopened)?;
        let stream = create_bucket(&connection, bucket, replicas).await?;
        Ok(Self { connection, stream, bucket: bucket.into() })
    }

    /// Fails if the connection is lost, because a request would wait for its restoration.
    fn connected(&self) -> Result<(), StoreError> {
        match self.connection.is_connected() {
            true => Ok(()),
            false => Err(StoreError::new(StoreErrorKind::NotApplied)
                .because("the connection to NATS is lost, and the client reconnects")),
        }
    }

    fn subject(&self, key: &Key) -> String {
        format!("$KV.{}.{}", self.bucket, URL_SAFE_NO_PAD.encode(key.hash().to_be_bytes()))
    }

    /// Reads the last message of a subject from the leader of the stream.
    async fn last(&self, subject: &str) -> Result<Option<LastMessage>, StoreError> {
        let found = match self.stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => message,
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return Ok(None),
            Err(error) => return Err(unread(error)),
        };
        let is_marker = |headers: &HeaderMap| headers.get(OPERATION).is_some() || headers.get(MARKER).is_some();
        let record = if is_marker(&found.headers) { None } else { Some(Record::from_bytes(&found.payload)?) };
        Ok(Some(LastMessage { sequence: found.sequence, record }))
    }

    /// Returns the time of the server that leads the stream.
    async fn now(&self) -> Result<Timestamp, StoreError> {
        let request = format!("STREAM.INFO.KV_{}", self.bucket);
        let answer: Response<ServerTime> = self.connection.jetstream.request(request, &()).await.map_err(unread)?;
        let ServerTime { ts } = match answer {
            Response::Ok(time) => time,
            Response::Err { error } => return Err(unread(error)),
        };
        let time = humantime::parse_rfc3339(&ts).map_err(unread)?;
        let micros = time.duration_since(std::time::UNIX_EPOCH).map_err(unread)?.as_micros();
        Ok(Timestamp(u64::try_from(micros).unwrap_or(u64::MAX)))
    }

    /// Writes a record, or the marker of a deletion, if the last message of the subject has this sequence. Zero: if there is none.
    async fn write(&self, subject: &str, expected: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        let message = PublishMessage::build().expected_last_subject_sequence(expected);
        let message = match next {
            Some(record) => match ttl(record) {
                Some(ttl) => message.payload(record.to_bytes().into()).ttl(ttl),
                None => message.payload(record.to_bytes().into()),
            },
            None => message.header(OPERATION, "DEL").ttl(CAS_MARGIN),
        };
        let written = match self.connection.jetstream.send_publish(subject.to_owned(), message).await {
            Ok(confirmation) => confirmation.await,
            Err(error) => Err(error),
        };
        match written {
            Ok(_) => Ok(true),
            Err(error) if is_overtaken(&error) => Ok(false),
            Err(error) => Err(unwritten(error)),
        }
    }
}

#[async_trait]
impl CasBackend for KvBackend {
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
        self.connected()?;
        let subject = self.subject(key);
        let (last, now) = tokio::try_join!(self.last(&subject), self.now())?;
        Ok(match last {
            Some(LastMessage { sequence, record: Some(record) }) => {
                VersionedRecord { record: Some(record), version: sequence, now }
            }
            _ => VersionedRecord { record: None, version: 0, now },
        })
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        self.connected()?;
        let subject = self.subject(key);
        let is_written = self.write(&subject, seen, next).await?;
        if is_written || seen != 0 {
            return Ok(is_written);
        }
        // Without a record, the last message may be the marker of a deletion.
        match self.last(&subject).await? {
            Some(LastMessage { sequence, record: None }) => self.write(&subject, sequence, next).await,
            _ => Ok(false),
        }
    }
}

/// Returns the time for which the server keeps a record that is written now, or `None` for a record that is kept for ever. The record
/// stays at least as long as [`removable`](idempotent_core::protocol::removable) demands, because no record was updated later than now.
fn ttl(record: &Record) -> Option<Duration> {
    let end = record.expires_at.max(Timestamp(record.fencing.0));
    let rest = end - record.updated_at + CAS_MARGIN;
    // Whole seconds, rounded up.
    (rest < LONGEST_TTL).then(|| rest + Duration::from_secs(1))
}

/// Creates the error of a request that reads.
fn unread(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied).because(format!("reading the bucket: {error}")).with_source(error)
}

/// Returns whether another write came first. The leader of a replicated bucket also refuses a write while another one of the subject is on
/// its way to the replicas.
fn is_overtaken(error: &PublishError) -> bool {
    let is_in_process =
        |refusal: &jetstream::Error| refusal.error_code() == ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT;
    error.kind() == PublishErrorKind::WrongLastSequence || refusal(error).is_some_and(is_in_process)
}

/// Creates the error of a write. Only an answer of the server shows that the write was not applied.
fn unwritten(error: PublishError) -> StoreError {
    let (kind, remedy) = match (error.kind(), refusal(&error)) {
        (PublishErrorKind::StreamNotFound, _) => {
            (StoreErrorKind::NotApplied, "; the bucket has no leader at the moment, or was deleted")
        }
        (PublishErrorKind::MaxPayloadExceeded, _) => {
            (StoreErrorKind::NotApplied, "; lower `max_result` of the policy, or raise `max_payload` of the server")
        }
        (PublishErrorKind::MaxAckPending, _) => (StoreErrorKind::NotApplied, ""),
        (_, Some(refusal)) if !is_undecided(refusal) => (StoreErrorKind::NotApplied, ""),
        _ => (StoreErrorKind::Ambiguous, ""),
    };
    StoreError::new(kind).because(format!("writing to the bucket: {error}{remedy}")).with_source(error)
}

/// Shows nothing of the URL.
impl fmt::Debug for KvBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvBackend").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{FencingToken, OwnerToken, State};
    use idempotent_harness::servers::NatsServer;

    use super::*;
    use crate::error::answered;

    #[test]
    fn only_an_answer_of_the_server_shows_that_a_write_was_not_applied() {
        use PublishErrorKind::{MaxAckPending, MaxPayloadExceeded, Other, StreamNotFound, TimedOut};
        use StoreErrorKind::{Ambiguous, NotApplied};
        let refused = |code, err_code, text| PublishError::with_source(Other, answered(code, err_code, text));
        for (error, kind, text) in [
            (PublishError::new(StreamNotFound), NotApplied, "no leader"),
            (PublishError::new(MaxPayloadExceeded), NotApplied, "`max_result`"),
            (PublishError::new(MaxAckPending), NotApplied, ""),
            (refused(400, 10_054, "message size exceeds maximum allowed"), NotApplied, "exceeds maximum"),
            (refused(503, 10_077, "store closed"), Ambiguous, "closed"),
            (refused(409, 10_158, "duplicate message id is in process"), Ambiguous, "in process"),
            (PublishError::new(TimedOut), Ambiguous, ""),
        ] {
            let told = unwritten(error);
            assert!(told.kind() == kind && told.to_string().contains(text), "{told}");
        }
    }

    #[tokio::test]
    async fn a_record_of_a_bucket_that_was_deleted_is_an_error_and_not_missing() {
        let server = NatsServer::start();
        let backend = KvBackend::create(server.url(), "keys", 1).await.unwrap();
        assert!(backend.last("$KV.keys.a").await.unwrap().is_none());
        backend.connection.jetstream.delete_stream("KV_keys").await.unwrap();
        assert!(backend.last("$KV.keys.a").await.is_err());
    }

    #[test]
    fn only_a_write_that_came_first_is_read_again() {
        use PublishErrorKind::{Other, TimedOut, WrongLastSequence};
        let in_process = answered(400, 10_164, "wrong last sequence");
        for (error, expected) in [
            (PublishError::new(WrongLastSequence), true),
            (PublishError::with_source(Other, in_process), true),
            (PublishError::with_source(Other, answered(503, 10_077, "store closed")), false),
            (PublishError::new(TimedOut), false),
        ] {
            assert_eq!(is_overtaken(&error), expected, "{error}");
        }
    }

    #[test]
    fn a_record_that_outlives_the_longest_time_to_live_of_the_server_is_kept() {
        let record = |rest: Duration| {
            let (now, owner) = (Timestamp(1_000_000), OwnerToken(7));
            Record {
                fencing: FencingToken(1),
                attempt: 1,
                fingerprint: None,
                state: State::Consumed { owner, value: None },
                expires_at: now + rest,
                first_seen: now,
                updated_at: now,
                display: None,
            }
        };
        let longest = LONGEST_TTL - CAS_MARGIN;
        assert_eq!(ttl(&record(longest)), None);
        let shorter = longest - Duration::from_micros(1);
        assert_eq!(ttl(&record(shorter)), Some(shorter + CAS_MARGIN + Duration::from_secs(1)));
    }
}

//! Creating, opening and checking key-value buckets.
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{self, DiscardPolicy, Stream};
use idempotent_core::{StoreError, StoreErrorKind};
use idempotent_mq::{SourceError, SourceErrorKind};

use crate::connection::Connection;

/// Creates a bucket if it does not exist, and opens it.
pub(crate) async fn create_bucket(
    connection: &Connection,
    bucket: &str,
    replicas: usize,
) -> Result<Stream, StoreError> {
    check_name(bucket)?;
    let config = stream::Config {
        name: format!("KV_{bucket}"),
        subjects: vec![format!("$KV.{bucket}.>")],
        num_replicas: replicas,
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        deny_delete: true,
        allow_rollup: true,
        allow_direct: true,
        allow_message_ttl: true,
        ..stream::Config::default()
    };
    let created = connection.jetstream.get_or_create_stream(config).await;
    checked(
        bucket,
        created.map_err(|error| match error.kind() {
            CreateStreamErrorKind::JetStream(refusal) => refused("creating", bucket, &refusal),
            _ => unanswered("creating", bucket, error),
        })?,
    )
}

/// Opens a bucket.
pub(crate) async fn open_bucket(connection: &Connection, bucket: &str) -> Result<Stream, StoreError> {
    check_name(bucket)?;
    let opened = connection.jetstream.get_stream(format!("KV_{bucket}")).await;
    checked(
        bucket,
        opened.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(refusal) => refused("opening", bucket, &refusal),
            _ => unanswered("opening", bucket, error),
        })?,
    )
}

/// Converts an error of connecting.
pub(crate) fn unopened(error: SourceError) -> StoreError {
    let kind = match error.kind() {
        SourceErrorKind::Fatal => StoreErrorKind::Schema,
        _ => StoreErrorKind::NotApplied,
    };
    StoreError::new(kind).because(error.to_string()).with_source(error)
}

fn check_name(bucket: &str) -> Result<(), StoreError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match !bucket.is_empty() && bucket.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err(unusable(bucket, "its name may only contain letters, digits, `-` and `_`")),
    }
}

/// Checks that the bucket keeps each record until its end.
fn checked(bucket: &str, stream: Stream) -> Result<Stream, StoreError> {
    let config = &stream.cached_info().config;
    let rule = if !config.allow_message_ttl {
        "its records would never be removed; run NATS 2.11 or later, and `nats stream edit --allow-msg-ttl`"
    } else if config.max_messages_per_subject != 1 {
        "its history keeps old records, which would return after the last one is removed; create it with a history of 1"
    } else if !config.max_age.is_zero() {
        "it removes records after a time of its own; create it without a TTL"
    } else if config.discard != DiscardPolicy::New {
        "it removes old records when it is full; create it with the discard policy `new`"
    } else {
        return Ok(stream);
    };
    Err(unusable(bucket, rule))
}

fn unusable(bucket: &str, rule: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Schema).because(format!("the bucket `{}`: {rule}", bucket.escape_debug()))
}

fn refused(doing: &str, bucket: &str, refusal: &async_nats::jetstream::Error) -> StoreError {
    use async_nats::jetstream::ErrorCode;
    let (kind, remedy) = match refusal.error_code() {
        ErrorCode::STREAM_NOT_FOUND => {
            (StoreErrorKind::Schema, "; create the bucket by `KvBackend::create` or by `nats kv add`")
        }
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            (StoreErrorKind::Schema, "; enable JetStream for the server and the account")
        }
        // 503: no leader, no resources, or a server that is starting.
        _ if refusal.code() == 503 => (StoreErrorKind::NotApplied, ""),
        _ => (StoreErrorKind::Schema, ""),
    };
    StoreError::new(kind).because(format!("{doing} the bucket `{bucket}`: {refusal}{remedy}"))
}

fn unanswered(doing: &str, bucket: &str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    let text = format!(
        "{doing} the bucket `{bucket}`: {error}; is JetStream enabled, and may the user publish to `$JS.API.>`?"
    );
    StoreError::new(StoreErrorKind::NotApplied).because(text).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::answered;

    #[test]
    fn a_refusal_is_final_unless_the_server_has_no_leader_at_the_moment() {
        use StoreErrorKind::{NotApplied, Schema};
        for (code, err_code, text, kind, remedy) in [
            (404, 10_059, "stream not found", Schema, "`nats kv add`"),
            (503, 10_076, "JetStream not enabled", Schema, "enable JetStream"),
            (503, 10_039, "JetStream not enabled for account", Schema, "enable JetStream"),
            (503, 10_008, "JetStream system temporarily unavailable", NotApplied, "unavailable"),
            (400, 10_052, "invalid stream configuration", Schema, "invalid"),
        ] {
            let error = refused("opening", "keys", &answered(code, err_code, text));
            assert!(error.kind() == kind && error.to_string().contains(remedy), "{error}");
        }
    }
}

//! Conversion of client and server errors into errors of a source.
use std::error::Error;

use async_nats::jetstream::{self, ErrorCode, context};
use async_nats::{ConnectError, ConnectErrorKind, RequestError, RequestErrorKind};
use idempotent_core::__private::url::unreached;
use idempotent_mq::{PublishError, PublishErrorKind, SourceError, SourceErrorKind};

use crate::options::REQUEST;

/// Creates an error for a setting or a state that a retry does not change.
pub(crate) fn fatal(doing: &str, remedy: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, format!("{doing}: {remedy}"))
}

/// Creates an error that a retry may solve.
pub(crate) fn transient(doing: &str, error: impl Error + Send + Sync + 'static) -> SourceError {
    SourceError::new(SourceErrorKind::Transient, format!("{doing}: {error}")).with_cause(error)
}

/// Creates an error for a request to JetStream without an answer.
pub(crate) fn unanswered(doing: &str, error: impl Error + Send + Sync + 'static) -> SourceError {
    let text = format!("{doing}: {error}; is JetStream enabled, and may the user publish to `$JS.API.>`?");
    SourceError::new(SourceErrorKind::Transient, text).with_cause(error)
}

/// Converts an error of connecting to one of these hosts.
pub(crate) fn connect_failure(hosts: &str, error: ConnectError) -> SourceError {
    use ConnectErrorKind::{Authentication, AuthorizationViolation, TimedOut, Tls};
    use SourceErrorKind::{Fatal, Transient};
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
    let cause = error.source().map_or_else(|| error.to_string(), |source| source.to_string().trim().to_owned());
    let (kind, cause, remedy) = match error.kind() {
        Authentication | AuthorizationViolation => (
            Fatal,
            error.kind().to_string(),
            "check the user and the password in the URL, the token, the NKey, or the credentials file",
        ),
        TimedOut => (
            Transient,
            format!("no answer within {REQUEST:?}"),
            "check that the server is not overloaded, that the host and the port are its own, and that it does not require \
             `handshake_first` of TLS",
        ),
        // The client reports most errors of TLS as errors of the connection.
        _ if cause.contains("received corrupt message") => {
            (Fatal, cause, "the server does not support TLS: use `nats://`, or configure `tls` at the server")
        }
        _ if error.kind() == Tls || io == Some(std::io::ErrorKind::InvalidData) => (
            Fatal,
            cause,
            "check the certificate authority (`tls_ca`) and the certificate of the client (`tls_certificate`)",
        ),
        _ if cause == "expected INFO, got nothing" => (Transient, cause, unreached("closed")),
        _ if cause.starts_with("expected INFO") || io == Some(std::io::ErrorKind::InvalidInput) => {
            (Transient, format!("no answer of NATS ({cause})"), "check the host and the port")
        }
        _ => {
            let remedy = unreached(&cause);
            (Transient, cause, remedy)
        }
    };
    SourceError::new(kind, format!("connecting to {hosts}: {cause}; {remedy}")).with_cause(error)
}

/// Returns the refusal of a stream, with which the stream answered a message.
pub(crate) fn refusal(error: &context::PublishError) -> Option<&jetstream::Error> {
    error.source()?.downcast_ref()
}

/// Returns the answer of a server with these codes.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) fn answered(code: u16, err_code: u64, description: &str) -> jetstream::Error {
    let answer = serde_json::json!({ "code": code, "err_code": err_code, "description": description });
    serde_json::from_value(answer).unwrap()
}

/// Returns whether a refused message may be stored nevertheless.
pub(crate) fn is_undecided(refusal: &jetstream::Error) -> bool {
    match refusal.error_code() {
        // A copy of the message is on its way to the replicas.
        ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT => true,
        // The server is stopping, and the other replicas may have the message. Other failures are limits of the stream.
        ErrorCode::STREAM_STORE_FAILED => refusal.to_string().contains("closed"),
        _ => false,
    }
}

/// Converts an error of publishing a copy of a message.
pub(crate) fn copy_failure(doing: &str, error: PublishError) -> SourceError {
    let kind = match error.kind() {
        PublishErrorKind::Refused if is_too_large(&error) => SourceErrorKind::Refused,
        PublishErrorKind::Refused => SourceErrorKind::Fatal,
        _ => SourceErrorKind::Transient,
    };
    SourceError::new(kind, format!("{doing}: {error}")).with_cause(error)
}

/// Creates an error for one dead letter, which others do not share.
pub(crate) fn refused(doing: &str, remedy: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Refused, format!("{doing}: {remedy}"))
}

/// Returns whether the server or the stream refuses a message because of its size.
fn is_too_large(error: &PublishError) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<context::PublishError>());
    cause.is_some_and(|cause| {
        const SIZES: [ErrorCode; 2] =
            [ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM];
        cause.kind() == context::PublishErrorKind::MaxPayloadExceeded
            || refusal(cause).is_some_and(|refusal| SIZES.contains(&refusal.error_code()))
    })
}

/// Converts the error of a request without an answer of JetStream.
pub(crate) fn request_failure(doing: &str, error: RequestError) -> SourceError {
    let hint = match error.kind() {
        RequestErrorKind::NoResponders => "; is JetStream enabled, and has the cluster a leader?",
        RequestErrorKind::TimedOut => {
            "; is the server reachable, and may the user publish to `$JS.API.>` and `$JS.ACK.>`?"
        }
        _ => "",
    };
    SourceError::new(SourceErrorKind::Transient, format!("{doing}: {}{hint}", error.kind())).with_cause(error)
}

/// Converts an error with which JetStream answered.
pub(crate) fn jetstream_failure(doing: &str, error: &jetstream::Error) -> SourceError {
    let code = error.error_code();
    let remedy = match code {
        ErrorCode::STREAM_NOT_FOUND => "; create the stream by `declare` on the builder, or by `nats stream add`",
        ErrorCode::CONSUMER_NOT_FOUND => "; create the consumer by `declare` on the builder, or by `nats consumer add`",
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            "; enable JetStream for the server and the account"
        }
        ErrorCode::STREAM_SUBJECT_OVERLAP => "; another stream contains one of the subjects",
        _ => "",
    };
    // 503: no leader, no resources, or a server that is starting.
    let kind =
        if error.code() == 503 && remedy.is_empty() { SourceErrorKind::Transient } else { SourceErrorKind::Fatal };
    SourceError::new(kind, format!("{doing}: {error}{remedy}"))
}

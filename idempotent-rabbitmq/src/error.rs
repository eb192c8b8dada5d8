//! Errors of settings, and conversions of client errors.
use idempotent_mq::{SourceError, SourceErrorKind};
use lapin::ErrorKind;

/// An invalid setting. The text contains the remedy and no URL.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("RabbitMQ: {0}")]
pub struct SettingError(Box<str>);

impl SettingError {
    pub(crate) fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }
}

/// Returns whether a retry would fail in the same way: denied access, a missing queue, or a queue with other settings.
pub(crate) fn is_final(error: &lapin::Error) -> bool {
    let ErrorKind::ProtocolError(refused) = error.kind() else { return false };
    match refused.get_id() {
        // The broker also reports a durable queue as missing while the queue's node is down.
        NOT_FOUND => !refused.get_message().as_str().contains("home node"),
        ACCESS_REFUSED | PRECONDITION_FAILED | NOT_ALLOWED => true,
        _ => false,
    }
}

/// Returns whether a queue or exchange does not exist.
pub(crate) fn is_not_found(error: &lapin::Error) -> bool {
    is_final(error) && matches!(error.kind(), ErrorKind::ProtocolError(refused) if refused.get_id() == NOT_FOUND)
}

const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;

/// Creates the error of an operation that the consumer repeats on another connection.
pub(crate) fn failed(what: &str, error: lapin::Error) -> SourceError {
    let kind = if is_final(&error) { SourceErrorKind::Fatal } else { SourceErrorKind::Transient };
    SourceError::new(kind, what).with_cause(error)
}

pub(crate) fn gone() -> SourceError {
    SourceError::new(SourceErrorKind::Gone, "the channel was closed: the broker redelivers the message")
}

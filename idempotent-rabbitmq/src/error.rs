//! What the client's errors mean.
use idempotent_mq::{SourceError, SourceErrorKind};
use lapin::ErrorKind;

/// A setting that cannot be. Says what to do about it; shows no URL.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("RabbitMQ: {0}")]
pub struct SettingError(Box<str>);

impl SettingError {
    pub(crate) fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }
}

/// Whether another try would fail the same way: no access, no such queue, other settings than those of what is there.
pub(crate) fn is_final(error: &lapin::Error) -> bool {
    let ErrorKind::ProtocolError(refused) = error.kind() else { return false };
    match refused.get_id() {
        // A durable queue whose node is down is said not to be found.
        NOT_FOUND => !refused.get_message().as_str().contains("home node"),
        ACCESS_REFUSED | PRECONDITION_FAILED | NOT_ALLOWED => true,
        _ => false,
    }
}

/// Whether a queue or exchange is not there.
pub(crate) fn is_not_found(error: &lapin::Error) -> bool {
    is_final(error) && matches!(error.kind(), ErrorKind::ProtocolError(refused) if refused.get_id() == NOT_FOUND)
}

const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;

/// An error of something that is done again by another connection.
pub(crate) fn failed(what: &str, error: lapin::Error) -> SourceError {
    let kind = if is_final(&error) { SourceErrorKind::Fatal } else { SourceErrorKind::Transient };
    SourceError::new(kind, what).with_cause(error)
}

pub(crate) fn gone() -> SourceError {
    SourceError::new(SourceErrorKind::Gone, "its channel was closed: the broker delivers it again")
}

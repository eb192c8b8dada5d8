//! What the client's errors mean.
use idempotent_mq::{SourceError, SourceErrorKind};
use rocketmq_client_rust::ClientError;

/// A setting that cannot be. Says what to do about it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("RocketMQ: {0}")]
pub struct SettingError(Box<str>);

impl SettingError {
    pub(crate) fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }
}

/// Whether another try would fail the same way: the broker said so. Everything else may be the network.
pub(crate) fn is_final(error: &ClientError) -> bool {
    matches!(error.broker_response_code(), Some(MESSAGE_ILLEGAL | NO_PERMISSION))
}

const MESSAGE_ILLEGAL: i32 = 13;
const NO_PERMISSION: i32 = 16;

/// Whether the name server was asked, and knows of no such topic: nothing was sent.
pub(crate) fn is_unknown_topic(error: &ClientError) -> bool {
    error.is(&rocketmq_error::ROUTE_TOPIC_NOT_FOUND)
}

/// An error of something that is done again.
pub(crate) fn failed(what: &str, error: ClientError) -> SourceError {
    let kind = if is_final(&error) { SourceErrorKind::Fatal } else { SourceErrorKind::Transient };
    SourceError::new(kind, what).with_cause(error)
}

pub(crate) fn transient(what: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Transient, what)
}

pub(crate) fn gone() -> SourceError {
    SourceError::new(SourceErrorKind::Gone, "its client has ended: the broker delivers it again")
}

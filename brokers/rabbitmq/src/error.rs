//! Classification of the client's errors, and the errors of a source.
use std::time::Duration;

use idempotent_mq::{SourceError, SourceErrorKind};
use lapin::ErrorKind;
use lapin::protocol::AMQPErrorKind;

use crate::options::BrokerUrl;

/// An invalid setting. The text names the setting, the rule and the remedy, and contains no URL.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("RabbitMQ: {0}")]
pub struct SettingError(Box<str>);

impl SettingError {
    pub(crate) fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }
}

impl From<SettingError> for SourceError {
    fn from(error: SettingError) -> Self {
        Self::new(SourceErrorKind::Fatal, error.0)
    }
}

/// Returns whether each further attempt fails in the same way: access is denied, a queue or exchange is missing, or its
/// settings differ.
pub(crate) fn is_final(error: &lapin::Error) -> bool {
    let ErrorKind::ProtocolError(refused) = error.kind() else { return false };
    match refused.get_id() {
        NOT_FOUND => !is_node_down(error),
        ACCESS_REFUSED | PRECONDITION_FAILED | NOT_ALLOWED => true,
        _ => false,
    }
}

/// Returns whether the node of a queue is down. The broker also reports such a durable queue as not found, with a text
/// of its own.
pub(crate) fn is_node_down(error: &lapin::Error) -> bool {
    let ErrorKind::ProtocolError(refused) = error.kind() else { return false };
    refused.get_id() == NOT_FOUND && refused.get_message().as_str().starts_with("NOT_FOUND - home node ")
}

/// Returns whether a queue or exchange is missing.
pub(crate) fn is_not_found(error: &lapin::Error) -> bool {
    is_final(error) && matches!(error.kind(), ErrorKind::ProtocolError(refused) if refused.get_id() == NOT_FOUND)
}

/// Returns whether an error has closed a channel only, and not its connection.
pub(crate) fn is_of_channel(error: &lapin::Error) -> bool {
    let ErrorKind::ProtocolError(refused) = error.kind() else { return false };
    matches!(refused.kind(), AMQPErrorKind::Soft(_))
}

/// Returns whether the body of a message is larger than the broker's setting `max_message_size`.
pub(crate) fn is_too_large(error: &lapin::Error) -> bool {
    is_refused_for(error, "message size")
}

/// Returns whether a precondition has failed, and the text of the broker contains `what`.
pub(crate) fn is_refused_for(error: &lapin::Error, what: &str) -> bool {
    let ErrorKind::ProtocolError(refused) = error.kind() else { return false };
    refused.get_id() == PRECONDITION_FAILED && refused.get_message().as_str().contains(what)
}

pub(crate) const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;
pub(crate) const NOT_ALLOWED: u16 = 530;

/// Creates a source error for an operation that is retried with another connection.
pub(crate) fn failure(text: &str, error: lapin::Error) -> SourceError {
    let kind = if is_final(&error) { SourceErrorKind::Fatal } else { SourceErrorKind::Transient };
    SourceError::new(kind, text).with_cause(error)
}

/// Creates the error of a connection attempt.
pub(crate) fn unconnected(broker: &BrokerUrl, error: lapin::Error) -> SourceError {
    failure(&broker.explain(&error), error)
}

/// The maximum time for the answer to a request.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);

/// Waits for the answer to a request. RabbitMQ 4.3 does not answer requests about a classic queue whose node is down, even
/// after the node is back.
///
/// # Errors
/// Returns the errors of the request, and `TimedOut` after [`ANSWER`].
pub(crate) async fn answered<T>(request: impl Future<Output = lapin::Result<T>>) -> lapin::Result<T> {
    tokio::time::timeout(ANSWER, request).await.unwrap_or_else(|_| Err(no_answer()))
}

/// Creates the error of a request without an answer.
pub(crate) fn no_answer() -> lapin::Error {
    let text = "no answer in time; check whether the node of the queue is running";
    std::io::Error::new(std::io::ErrorKind::TimedOut, text).into()
}

pub(crate) fn transient(text: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Transient, text)
}

pub(crate) fn channel_closed() -> SourceError {
    SourceError::new(SourceErrorKind::Gone, "settling: the channel was closed, and the broker redelivers the message")
}

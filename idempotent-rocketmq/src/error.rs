//! What the client's errors mean.
use idempotent_mq::{SourceError, SourceErrorKind};
use rocketmq_client_rust::{ClientError, MQClientException};
use rocketmq_error::{ROUTE_TOPIC_NOT_FOUND, TRANSPORT_CONNECTION_FAILED, TRANSPORT_CONNECTION_TIMEOUT, ViewValueRef};

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

/// Whether the name server was asked for a topic's queues, and says that there are none. The client tells it by an error of
/// its own without a code.
pub(crate) fn is_unknown_topic(error: &ClientError) -> bool {
    let own = error.source_ref::<MQClientException>();
    error.is(&ROUTE_TOPIC_NOT_FOUND) || own.is_some_and(|own| own.response_code() == NO_CODE)
}

/// Whether what one try was to send surely is in no topic: the broker said so, or was never reached. Nothing of it is
/// known where the error is of several tries. "Service not available" (14) is not among them: a broker that lost its
/// controller's lease says so of what it has stored, too.
pub(crate) fn is_not_stored(error: &ClientError) -> bool {
    error.is(&ROUTE_TOPIC_NOT_FOUND)
        // Of the client's own making: it knows of no broker, or does not begin.
        || error.source_ref::<MQClientException>().is_some()
        || error.is(&TRANSPORT_CONNECTION_TIMEOUT)
        || error.is(&TRANSPORT_CONNECTION_FAILED) && phase(error) == Some("connect")
        || matches!(error.broker_response_code(), Some(SYSTEM_BUSY | TOPIC_NOT_EXIST))
        || is_final(error)
}

const NO_CODE: i32 = -1;
const SYSTEM_BUSY: i32 = 2;
const TOPIC_NOT_EXIST: i32 = 17;

/// How far a request came.
fn phase(error: &ClientError) -> Option<&str> {
    let name = rocketmq_error::fields::PHASE.schema().name();
    let mut fields = error.shared_error().diagnostic_view().ok()?.fields();
    fields.find_map(|field| match (field.name() == name, field.value()) {
        (true, ViewValueRef::Text(phase)) => Some(phase),
        _ => None,
    })
}

/// What may be done about a message that a broker refuses.
pub(crate) fn refusal(error: &ClientError) -> Option<&'static str> {
    match error.broker_response_code()? {
        MESSAGE_ILLEGAL => Some("the broker refuses it: it is larger than the broker's `maxMessageSize`, or malformed"),
        NO_PERMISSION => Some("the broker refuses it: give this client, or the topic, the right to be written to"),
        _ => None,
    }
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

//! Classification of the client's errors, and the errors of a source.
use idempotent_mq::{SourceError, SourceErrorKind};
use rocketmq_client_rust::{ClientError, MQClientException};
use rocketmq_error::fields::{FORMAT, OPERATION_DIAGNOSTIC, PHASE};
use rocketmq_error::{
    CORE_SERIALIZATION_FAILED, ROUTE_TOPIC_NOT_FOUND, TRANSPORT_CONNECTION_FAILED, TRANSPORT_CONNECTION_TIMEOUT,
    ViewValueRef,
};

/// An invalid setting. The text names the setting, the rule and the remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("RocketMQ: {0}")]
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

/// Returns whether the broker rejects each further attempt in the same way. All other errors may be caused by the network.
pub(crate) fn is_final(error: &ClientError) -> bool {
    matches!(response_code(error), Some(MESSAGE_ILLEGAL | NO_PERMISSION)) || exceeds_frame(error)
}

/// Returns whether the credentials are wrong, or lack a permission.
pub(crate) fn is_denied(error: &ClientError) -> bool {
    response_code(error) == Some(NO_PERMISSION)
}

/// Returns whether the group is missing, and the broker does not create groups.
pub(crate) fn is_missing_group(error: &ClientError) -> bool {
    response_code(error) == Some(SUBSCRIPTION_GROUP_NOT_EXIST)
}

/// Creates the error of a missing group.
pub(crate) fn group_missing(doing: &str, group: &str, error: ClientError) -> SourceError {
    let text = format!(
        "{doing}: the broker does not create groups, and the group `{group}` is missing; create it with the broker's tools"
    );
    SourceError::new(SourceErrorKind::Fatal, text).with_cause(error)
}

/// Returns the code of the broker's response. The client's exceptions contain it, too.
fn response_code(error: &ClientError) -> Option<i32> {
    let own = || error.source_ref::<MQClientException>().map(MQClientException::response_code);
    error.broker_response_code().or_else(own)
}

const MESSAGE_ILLEGAL: i32 = 13;
const NO_PERMISSION: i32 = 16;
pub(crate) const QUERY_NOT_FOUND: i32 = 22;
const SUBSCRIPTION_GROUP_NOT_EXIST: i32 = 26;

/// Returns whether the name server has no queues for a topic. The client reports this with an error of its own, without a
/// response code.
pub(crate) fn is_unknown_topic(error: &ClientError) -> bool {
    let own = error.source_ref::<MQClientException>();
    error.is(&ROUTE_TOPIC_NOT_FOUND) || own.is_some_and(|own| own.response_code() == NO_CODE)
}

/// Returns whether the message of a single attempt is certainly not stored: the broker confirmed that, or was never reached. For an
/// error of several attempts, the result is meaningless.
///
/// The response "service not available" (14) proves nothing: a broker that has lost its controller's lease also gives this
/// response for messages that it has stored.
pub(crate) fn is_not_stored(error: &ClientError) -> bool {
    error.is(&ROUTE_TOPIC_NOT_FOUND)
        // Created by the client: no broker is known, or the client cannot start.
        || error.source_ref::<MQClientException>().is_some()
        || error.is(&TRANSPORT_CONNECTION_TIMEOUT)
        || error.is(&TRANSPORT_CONNECTION_FAILED) && text(error, PHASE.schema().name()) == Some("connect")
        || matches!(error.broker_response_code(), Some(SYSTEM_BUSY | TOPIC_NOT_EXIST))
        || is_final(error)
}

const NO_CODE: i32 = -1;
const SYSTEM_BUSY: i32 = 2;
const TOPIC_NOT_EXIST: i32 = 17;

/// Returns whether the message is larger than a frame of the client, which then sends nothing.
fn exceeds_frame(error: &ClientError) -> bool {
    error.is(&CORE_SERIALIZATION_FAILED)
        && text(error, OPERATION_DIAGNOSTIC.schema().name()) == Some("encode")
        && text(error, FORMAT.schema().name()) == Some("remoting-command")
}

/// Returns the text of a field that the client adds to an error.
fn text<'a>(error: &'a ClientError, name: &str) -> Option<&'a str> {
    let mut fields = error.shared_error().diagnostic_view().ok()?.fields();
    fields.find_map(|field| match (field.name() == name, field.value()) {
        (true, ViewValueRef::Text(text)) => Some(text),
        _ => None,
    })
}

/// Returns the remedy for a message that the broker rejects.
pub(crate) fn rejection(error: &ClientError) -> Option<&'static str> {
    if exceeds_frame(error) {
        return Some("larger than 16 MiB after compression, which the client cannot send; shrink the message");
    }
    match response_code(error)? {
        MESSAGE_ILLEGAL => Some(
            "the broker rejects the message as malformed or larger than `maxMessageSize`; shrink the message, or raise \
             the broker's setting",
        ),
        NO_PERMISSION => Some(
            "the broker denies writing to the topic; check the credentials, or grant the client or the topic the permission to write",
        ),
        _ => None,
    }
}

/// Creates a source error for an operation that is retried.
pub(crate) fn failure(text: &str, error: ClientError) -> SourceError {
    let kind = match response_code(&error) {
        Some(MESSAGE_ILLEGAL) => SourceErrorKind::Refused,
        Some(NO_PERMISSION) => SourceErrorKind::Fatal,
        _ if exceeds_frame(&error) => SourceErrorKind::Refused,
        _ => SourceErrorKind::Transient,
    };
    SourceError::new(kind, text).with_cause(error)
}

pub(crate) fn transient(text: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Transient, text)
}

pub(crate) fn client_ended() -> SourceError {
    SourceError::new(SourceErrorKind::Gone, "settling: the client has shut down, and the broker redelivers the message")
}

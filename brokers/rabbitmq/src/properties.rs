//! Constants and copies of AMQP properties.
use lapin::BasicProperties;

/// The delivery mode of a persistent message.
pub(crate) const PERSISTENT: u8 = 2;
/// The delivery mode of a transient message.
pub(crate) const TRANSIENT: u8 = 1;
/// Maximum length of a short string in AMQP, in bytes.
pub(crate) const MAX_SHORT_STRING: usize = 255;

/// Returns a copy without headers, expiration and user id. The client has no method to remove a property.
pub(crate) fn copy_properties(from: &BasicProperties) -> BasicProperties {
    let mut to = BasicProperties::default();
    macro_rules! copy {
        ($($read:ident $write:ident)*) => { $(if let Some(value) = from.$read() { to = to.$write(value.clone()); })* };
    }
    copy! {
        content_type with_content_type
        content_encoding with_content_encoding
        priority with_priority
        correlation_id with_correlation_id
        reply_to with_reply_to
        message_id with_message_id
        timestamp with_timestamp
        kind with_type
        app_id with_app_id
        cluster_id with_cluster_id
    }
    to
}

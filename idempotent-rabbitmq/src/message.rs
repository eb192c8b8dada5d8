//! Messages of a publisher.
use std::fmt;
use std::time::Duration;

use idempotent_core::{Entropy, EntropyError, OsEntropy};
use lapin::BasicProperties;
use lapin::types::ShortString;

use crate::field_value::{FieldValue, Fields, field_table};
use crate::properties::{MAX_SHORT_STRING, PERSISTENT, TRANSIENT};

/// A message for a publisher. The id is fixed at creation, so all copies that a publisher sends have the same id.
///
/// ```
/// use idempotent_rabbitmq::RabbitMessage;
///
/// let order = RabbitMessage::new("order-17", "{}").content_type("application/json").header("tenant", "acme");
/// // `Debug` shows neither the id nor the body.
/// assert!(!format!("{order:?}").contains("order-17"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct RabbitMessage {
    id: String,
    body: Vec<u8>,
    headers: Fields,
    content_type: Option<String>,
    correlation_id: Option<String>,
    expires_after: Option<Duration>,
    transient: bool,
}

impl RabbitMessage {
    /// Creates a message with an id of at most 255 bytes.
    ///
    /// An id that is stored with the data, such as the id of a row in an outbox, is the same after a restart of the
    /// publisher. Consumers then also detect copies from before the restart.
    pub fn new(id: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self {
            id: id.into(),
            body: body.into(),
            headers: Fields::new(),
            content_type: None,
            correlation_id: None,
            expires_after: None,
            transient: false,
        }
    }

    /// Creates a message with a random id of 32 hex digits.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn with_random_id(body: impl Into<Vec<u8>>) -> Result<Self, EntropyError> {
        Ok(Self::new(format!("{:032x}", OsEntropy.bits()?), body))
    }

    /// Sets a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<FieldValue>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets the media type of the body.
    pub fn content_type(mut self, media_type: impl Into<String>) -> Self {
        self.content_type = Some(media_type.into());
        self
    }

    /// Sets the id of the request or process to which the message belongs.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Sets the time in a queue after which the broker drops the message.
    ///
    /// # Default
    /// The message does not expire.
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.expires_after = Some(time);
        self
    }

    /// Lets the broker lose the message when it restarts.
    ///
    /// # Default
    /// The message is persistent.
    pub fn transient(mut self) -> Self {
        self.transient = true;
        self
    }

    /// Returns the message's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns whether the message has an expiry time.
    pub(crate) fn expires(&self) -> bool {
        self.expires_after.is_some()
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the AMQP properties, or `None` if a name or id is longer than the protocol allows.
    pub(crate) fn properties(&self) -> Option<BasicProperties> {
        let short = |text: &str| ShortString::try_new(text).ok();
        if self.headers.keys().any(|name| name.len() > MAX_SHORT_STRING) {
            return None;
        }
        let mut properties = BasicProperties::default()
            .with_message_id(short(&self.id)?)
            .with_headers(field_table(&self.headers))
            .with_delivery_mode(if self.transient { TRANSIENT } else { PERSISTENT });
        if let Some(media_type) = &self.content_type {
            properties = properties.with_content_type(short(media_type)?);
        }
        if let Some(id) = &self.correlation_id {
            properties = properties.with_correlation_id(short(id)?);
        }
        if let Some(time) = self.expires_after {
            properties = properties.with_expiration(short(&time.as_millis().to_string())?);
        }
        Some(properties)
    }
}

/// Shows sizes only.
impl fmt::Debug for RabbitMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMessage")
            .field("bytes", &self.body.len())
            .field("headers", &self.headers.len())
            .finish_non_exhaustive()
    }
}

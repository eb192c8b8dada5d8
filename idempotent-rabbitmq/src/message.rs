//! Messages to publish and their routes.
use std::fmt;
use std::time::Duration;

use idempotent_core::{Entropy, EntropyError, OsEntropy};
use lapin::BasicProperties;
use lapin::types::ShortString;

use crate::field::{FieldValue, Fields, table};
use crate::retry_headers::PERSISTENT;

/// A message to publish. Its id is fixed, so all copies have the same id.
///
/// ```
/// use idempotent_rabbitmq::RabbitMessage;
///
/// let order = RabbitMessage::new("order-17", "{}").content_type("application/json").header("tenant", "acme");
/// The debug output contains neither ids nor bodies.
/// assert!(!format!("{order:?}").contains("order-17"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct RabbitMessage {
    id: String,
    body: Vec<u8>,
    headers: Fields,
    content_type: Option<String>,
    correlation: Option<String>,
    expires_after: Option<Duration>,
    transient: bool,
}

/// The route of a message: an exchange and a routing key.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub struct Route {
    pub(crate) exchange: String,
    pub(crate) key: String,
}

impl Route {
    /// Returns the route to a queue.
    pub fn queue(name: impl Into<String>) -> Self {
        Self::exchange("", name)
    }

    /// Returns the route to an exchange, with a routing key.
    pub fn exchange(name: impl Into<String>, key: impl Into<String>) -> Self {
        Self { exchange: name.into(), key: key.into() }
    }
}

impl RabbitMessage {
    /// Creates a message with this id, at most 255 bytes. Store the id with the subject of the message, such as the
    /// row of an outbox, so that a restarted publisher uses it again.
    pub fn new(id: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self {
            id: id.into(),
            body: body.into(),
            headers: Fields::new(),
            content_type: None,
            correlation: None,
            expires_after: None,
            transient: false,
        }
    }

    /// Creates a message with a random id of 32 hexadecimal digits.
    ///
    /// # Errors
    /// The operating system returned no random bytes.
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

    /// Sets the id of the request or message that this message belongs to.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation = Some(id.into());
        self
    }

    /// Sets the time after which the broker drops a waiting message.
    ///
    /// # Default
    /// No expiry
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.expires_after = Some(time);
        self
    }

    /// Makes the message transient: it need not survive a restart of the broker.
    ///
    /// # Default
    /// Persistent
    pub fn transient(mut self) -> Self {
        self.transient = true;
        self
    }

    /// Returns the id of the message.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns whether the broker would drop the message while it waits.
    pub(crate) fn expires(&self) -> bool {
        self.expires_after.is_some()
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the properties, or `None` if a name or id exceeds the limit of the protocol.
    pub(crate) fn properties(&self) -> Option<BasicProperties> {
        let short = |text: &str| ShortString::try_new(text).ok();
        if self.headers.keys().any(|name| name.len() > LONGEST) {
            return None;
        }
        let mut properties = BasicProperties::default()
            .with_message_id(short(&self.id)?)
            .with_headers(table(&self.headers))
            .with_delivery_mode(if self.transient { 1 } else { PERSISTENT });
        if let Some(media_type) = &self.content_type {
            properties = properties.with_content_type(short(media_type)?);
        }
        if let Some(id) = &self.correlation {
            properties = properties.with_correlation_id(short(id)?);
        }
        if let Some(time) = self.expires_after {
            properties = properties.with_expiration(short(&time.as_millis().to_string())?);
        }
        Some(properties)
    }
}

/// The maximum length of short strings in AMQP, in bytes.
pub(crate) const LONGEST: usize = 255;

/// Prints sizes only.
impl fmt::Debug for RabbitMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMessage")
            .field("bytes", &self.body.len())
            .field("headers", &self.headers.len())
            .finish_non_exhaustive()
    }
}

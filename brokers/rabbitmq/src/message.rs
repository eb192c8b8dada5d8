//! Conversion of outbound messages to AMQP.
use std::fmt;
use std::time::Duration;

use idempotent_mq::{OutboundMessage, PublishError, PublishErrorKind};
use lapin::BasicProperties;
use lapin::types::ShortString;

use crate::Route;
use crate::field_value::{FieldValue, Fields, field_table};
use crate::properties::{MAX_SHORT_STRING, PERSISTENT, TRANSIENT};

/// Properties of a message that only AMQP has, for [`RabbitPublisher::publish_with`](crate::RabbitPublisher::publish_with).
///
/// ```
/// use idempotent_rabbitmq::RabbitProperties;
///
/// let json = RabbitProperties::default().content_type("application/json").header("retries", 3);
/// // `Debug` shows no values.
/// assert!(!format!("{json:?}").contains("json"));
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct RabbitProperties {
    route: Option<Route>,
    headers: Fields,
    content_type: Option<String>,
    correlation_id: Option<String>,
    expires_after: Option<Duration>,
    priority: Option<u8>,
    transient: bool,
}

impl RabbitProperties {
    /// Sets the route, in place of the topic. A topic cannot name an exchange with `/` in its name.
    ///
    /// # Default
    /// The message's topic
    pub fn route(mut self, to: Route) -> Self {
        self.route = Some(to);
        self
    }

    /// Sets a header with a typed value, in place of the message's header of this name.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<FieldValue>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets the media type of the body.
    ///
    /// # Default
    /// None
    pub fn content_type(mut self, media_type: impl Into<String>) -> Self {
        self.content_type = Some(media_type.into());
        self
    }

    /// Sets the id of the request or process to which the message belongs.
    ///
    /// # Default
    /// The message's [`business_key`](OutboundMessage::business_key), if any
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

    /// Sets the priority in a queue with the argument `x-max-priority`, which delivers higher priorities first. Other queues
    /// ignore it, or know two levels (quorum queues of RabbitMQ 4: up to 4, and above).
    ///
    /// # Default
    /// None, which the broker treats as 0
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
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
}

/// Shows the number of headers only.
impl fmt::Debug for RabbitProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitProperties").field("headers", &self.headers.len()).finish_non_exhaustive()
    }
}

/// A message as AMQP transmits it.
#[derive(Debug)]
pub(crate) struct EncodedMessage<'a> {
    pub(crate) to: Route,
    pub(crate) id: &'a str,
    pub(crate) properties: BasicProperties,
    pub(crate) body: &'a [u8],
}

impl<'a> EncodedMessage<'a> {
    /// Encodes a message.
    ///
    /// # Errors
    /// `Refused` if AMQP cannot transmit the message.
    pub(crate) fn new(message: &'a OutboundMessage, properties: &RabbitProperties) -> Result<Self, PublishError> {
        let to = properties.route.clone().unwrap_or_else(|| route(&message.topic));
        let headers = headers(message, properties)?;
        let too_long = || refused("message: an id, a header name or the route is longer than 255 bytes; shorten it");
        let fits = [&to.exchange, &to.key].into_iter().chain(headers.keys()).all(|name| name.len() <= MAX_SHORT_STRING);
        let encoded = encode(message, properties, &headers).filter(|_| fits).ok_or_else(too_long)?;
        Ok(Self { to, id: &message.id, properties: encoded, body: &message.body })
    }

    /// Returns whether the broker drops the message after a time.
    pub(crate) fn expires(&self) -> bool {
        self.properties.expiration().is_some()
    }
}

/// Returns the error for a message that no retry can publish.
pub(crate) fn refused(text: &'static str) -> PublishError {
    PublishError::new(PublishErrorKind::Refused, text)
}

/// Parses a topic: a queue, or `EXCHANGE/ROUTING KEY`.
fn route(topic: &str) -> Route {
    match topic.split_once('/') {
        Some((exchange, key)) => Route::exchange(exchange, key),
        None => Route::queue(topic),
    }
}

fn headers(message: &OutboundMessage, properties: &RabbitProperties) -> Result<Fields, PublishError> {
    let mut fields = Fields::new();
    for (name, value) in message.headers.iter() {
        // Other clients read a text value as text.
        let text = String::from_utf8(value.to_vec()).map(FieldValue::Text);
        let value = text.unwrap_or_else(|bytes| FieldValue::Bytes(bytes.into_bytes()));
        if fields.insert(name.to_owned(), value).is_some() {
            return Err(refused("headers: a name is repeated, and AMQP has one value for each name; join the values"));
        }
    }
    fields.extend(properties.headers.clone());
    Ok(fields)
}

/// Returns the AMQP properties, or `None` if a text is longer than the protocol allows.
fn encode(message: &OutboundMessage, given: &RabbitProperties, headers: &Fields) -> Option<BasicProperties> {
    let short = |text: &str| ShortString::try_new(text).ok();
    if headers.keys().any(|name| name.len() > MAX_SHORT_STRING) {
        return None;
    }
    let mut properties = BasicProperties::default()
        .with_message_id(short(&message.id)?)
        .with_headers(field_table(headers))
        .with_delivery_mode(if given.transient { TRANSIENT } else { PERSISTENT });
    if let Some(media_type) = &given.content_type {
        properties = properties.with_content_type(short(media_type)?);
    }
    if let Some(id) = given.correlation_id.as_ref().or(message.business_key.as_ref()) {
        properties = properties.with_correlation_id(short(id)?);
    }
    if let Some(time) = given.expires_after {
        properties = properties.with_expiration(short(&time.as_millis().to_string())?);
    }
    if let Some(priority) = given.priority {
        properties = properties.with_priority(priority);
    }
    Some(properties)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_a_queue_or_an_exchange_and_a_key() {
        assert_eq!(route("orders"), Route::queue("orders"));
        assert_eq!(route("payments/paid.eu/de"), Route::exchange("payments", "paid.eu/de"));
        assert_eq!(route("/a/b"), Route::exchange("", "a/b"), "a queue with `/` in its name");
        let message = OutboundMessage::new(Route::exchange("payments", "paid.eu/de"), "m", "");
        assert_eq!(route(&message.topic), Route::exchange("payments", "paid.eu/de"));
        for name in ["orders", "a/b"] {
            assert_eq!(route(&String::from(Route::queue(name))), Route::queue(name));
        }
        let odd = RabbitProperties::default().route(Route::exchange("a/b", "k"));
        assert_eq!(EncodedMessage::new(&message, &odd).unwrap().to, Route::exchange("a/b", "k"));
    }

    #[test]
    fn a_repeated_header_is_refused_and_other_headers_are_kept() {
        let encoded = |message: &OutboundMessage| {
            EncodedMessage::new(message, &RabbitProperties::default().header("typed", 3))
                .map(|message| message.properties)
        };
        let repeated = OutboundMessage::new("q", "m", "").header("a", "1").header("a", "2");
        assert_eq!(encoded(&repeated).unwrap_err().kind(), PublishErrorKind::Refused);
        let odd = OutboundMessage::new("q", "m", "").header("text", "x").header("bytes", [0xff]).header("typed", "x");
        let headers = encoded(&odd).unwrap().headers().clone().unwrap();
        let expected = [
            ("text", FieldValue::Text("x".to_owned())),
            ("bytes", FieldValue::Bytes(vec![0xff])),
            ("typed", FieldValue::Number(3)),
        ];
        assert_eq!(headers, field_table(&expected.map(|(name, value)| (name.to_owned(), value)).into()));
    }

    #[test]
    fn a_text_that_amqp_cannot_transmit_is_refused() {
        let long = "k".repeat(MAX_SHORT_STRING + 1);
        let message = |topic: &str, id: &str| OutboundMessage::new(topic, id, "");
        for odd in [
            message(&long, "m"),
            message("q", &long),
            message("q", "m").header(&*long, ""),
            message("q", "m").business_key(&*long),
        ] {
            let error = EncodedMessage::new(&odd, &RabbitProperties::default()).unwrap_err();
            assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains("255 bytes"), "{error}");
        }
        let longest = "k".repeat(MAX_SHORT_STRING);
        let message = message(&longest, &longest).header(&*longest, "").business_key(&*longest);
        assert!(EncodedMessage::new(&message, &RabbitProperties::default()).is_ok());
    }
}

//! Extraction of idempotency keys from messages.
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use idempotent_core::{KeyExtractor, KeyPart, Parts};

use crate::Message;

/// An extractor of the idempotency key of a message.
///
/// The consumer's group is part of the identity, so two groups that receive the same message each run their handler.
///
/// The consumer dead-letters a message without such a key, unless the message may run
/// [unprotected](Self::or_unprotected). A generated key would protect nothing.
///
/// ```
/// use idempotent_mq::KeyFrom;
///
/// struct Order { customer: u64, number: u64 }
///
/// // The business key is the same if the producer sends the message twice. Prefer such a key.
/// let key = KeyFrom::body("order", |order: &Order| (order.customer, order.number));
/// // The message id is the same for a redelivery, but not if the producer sends the message twice.
/// let key = KeyFrom::<Order>::message_id();
/// ```
#[must_use]
pub struct KeyFrom<T> {
    extract: Extract<T>,
    what: Arc<str>,
    pub(crate) or_unprotected: bool,
}

type Extract<T> = Arc<dyn Fn(&Message<T>, &mut Parts) + Send + Sync>;

impl<T> KeyFrom<T> {
    /// Uses [`Delivery::id`](crate::Delivery::id). A message that the producer sends twice with two ids is not a duplicate.
    pub fn message_id() -> Self {
        Self::parts("message id", |message, parts| message.delivery.id.write_to(parts))
    }

    /// Uses [`Delivery::business_key`](crate::Delivery::business_key).
    pub fn business_key() -> Self {
        Self::parts("business key", |message, parts| message.delivery.business_key.write_to(parts))
    }

    /// Uses all values of this header, in order.
    pub fn header(name: impl Into<String>) -> Self {
        let name = name.into();
        let what = format!("header {name}");
        Self::parts(what, move |message, parts| {
            for value in message.delivery.headers.all(&name) {
                parts.push(value);
            }
        })
    }

    /// Uses source, partition and offset, for logs such as Kafka's whose producers set no ids. A message that the producer
    /// sends twice is not a duplicate.
    pub fn position() -> Self {
        Self::parts("position", |message, parts| {
            let position = &message.delivery.position;
            position.source.write_to(parts);
            parts.push(position.partition.map_or_else(|| "-".to_owned(), |partition| partition.to_string()));
            position.offset.as_deref().write_to(parts);
        })
    }

    /// Uses the decoded body, by a function or a custom extractor. `what` names the key in errors.
    pub fn body(what: impl Into<Cow<'static, str>>, key: impl KeyExtractor<T> + 'static) -> Self {
        Self::parts(what, move |message, parts| key.extract(&message.body, parts))
    }

    /// Uses body and delivery, by a function or a custom extractor. `what` names the key in errors.
    pub fn message(what: impl Into<Cow<'static, str>>, key: impl KeyExtractor<Message<T>> + 'static) -> Self {
        Self::parts(what, move |message, parts| key.extract(message, parts))
    }

    /// Lets a message without this key run without protection, so that its duplicates run too. Such messages count as
    /// [`unprotected`](crate::ConsumerCounts::unprotected).
    pub fn or_unprotected(mut self) -> Self {
        self.or_unprotected = true;
        self
    }

    fn parts(
        what: impl Into<Cow<'static, str>>,
        extract: impl Fn(&Message<T>, &mut Parts) + Send + Sync + 'static,
    ) -> Self {
        Self { extract: Arc::new(extract), what: Arc::from(&*what.into()), or_unprotected: false }
    }

    pub(crate) fn of(&self, message: &Message<T>) -> Parts {
        let mut parts = Parts::default();
        (self.extract)(message, &mut parts);
        parts
    }

    pub(crate) fn what(&self) -> Arc<str> {
        self.what.clone()
    }
}

impl<T> Clone for KeyFrom<T> {
    fn clone(&self) -> Self {
        Self { extract: self.extract.clone(), what: self.what.clone(), or_unprotected: self.or_unprotected }
    }
}

impl<T> fmt::Debug for KeyFrom<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyFrom({})", self.what)
    }
}

//! Where a message's key is taken from.
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use idempotent_core::{KeyExtractor, KeyPart, Parts};

use crate::Message;

/// Where a message's key is taken from. The consumer's group is part of the key's identity, so two groups that get the
/// same message each run it.
///
/// A message that has no such key is put aside with the reason, unless it is allowed to run
/// [unprotected](Self::or_unprotected). It is never given a made-up key: that would protect nothing and look as if it
/// did.
///
/// ```
/// use idempotent_mq::KeyFrom;
///
/// struct Order { customer: u64, number: u64 }
///
/// // What the message is about: the same for a message that the producer sent twice. The best there is.
/// let key = KeyFrom::body("order", |order: &Order| (order.customer, order.number));
/// // The message's own id: the same for what the broker delivers twice, not for what the producer sends twice.
/// let key = KeyFrom::<Order>::message_id();
/// ```
#[must_use]
pub struct KeyFrom<T> {
    extract: Extract<T>,
    what: Cow<'static, str>,
    pub(crate) or_unprotected: bool,
}

type Extract<T> = Arc<dyn Fn(&Message<T>, &mut Parts) + Send + Sync>;

impl<T> KeyFrom<T> {
    /// [`Delivery::id`](crate::Delivery::id). Does not see a producer that sends twice under two ids.
    pub fn message_id() -> Self {
        Self::parts("message id", |message, parts| message.delivery.id.write_to(parts))
    }

    /// [`Delivery::business_key`](crate::Delivery::business_key).
    pub fn business_key() -> Self {
        Self::parts("business key", |message, parts| message.delivery.business_key.write_to(parts))
    }

    /// All values of this header, in order.
    pub fn header(name: impl Into<String>) -> Self {
        let name = name.into();
        let what = format!("header {name}");
        Self::parts(what, move |message, parts| {
            for value in message.delivery.headers.all(&name) {
                parts.push(value);
            }
        })
    }

    /// Source, partition and offset: for logs such as Kafka's whose producers give no ids. Sees nothing of what the
    /// producer sends twice.
    pub fn position() -> Self {
        Self::parts("position", |message, parts| {
            let position = &message.delivery.position;
            position.source.write_to(parts);
            parts.push(position.partition.map_or_else(|| "-".to_owned(), |partition| partition.to_string()));
            position.offset.as_deref().write_to(parts);
        })
    }

    /// The decoded body, by a function or an extractor of yours; `what` names it in errors.
    pub fn body(what: impl Into<Cow<'static, str>>, key: impl KeyExtractor<T> + 'static) -> Self {
        Self::parts(what, move |message, parts| key.extract(&message.body, parts))
    }

    /// Body and delivery, by a function or an extractor of yours; `what` names it in errors.
    pub fn message(what: impl Into<Cow<'static, str>>, key: impl KeyExtractor<Message<T>> + 'static) -> Self {
        Self::parts(what, move |message, parts| key.extract(message, parts))
    }

    /// A message without this key runs without protection: its duplicates run too. Counted as
    /// [`unprotected`](crate::ConsumerCounts::unprotected).
    pub fn or_unprotected(mut self) -> Self {
        self.or_unprotected = true;
        self
    }

    fn parts(
        what: impl Into<Cow<'static, str>>,
        extract: impl Fn(&Message<T>, &mut Parts) + Send + Sync + 'static,
    ) -> Self {
        Self { extract: Arc::new(extract), what: what.into(), or_unprotected: false }
    }

    pub(crate) fn of(&self, message: &Message<T>) -> Parts {
        let mut parts = Parts::default();
        (self.extract)(message, &mut parts);
        parts
    }

    pub(crate) fn what(&self) -> Cow<'static, str> {
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

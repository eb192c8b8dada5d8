//! The names and values of the headers that this crate sets. Their names begin with `x-idempotent-`.
use std::borrow::Cow;
use std::collections::BTreeMap;

use idempotent_core::__private::start_of;
use idempotent_mq::{Datum, Envelope, Field, MessagePlace};
use lapin::types::{AMQPValue, ShortString};

use crate::delay_queues::names::PLUGIN_DELAY;
use crate::headers::integer;

/// The headers of a message, ordered by name.
pub(super) type HeaderTable = BTreeMap<ShortString, AMQPValue>;

pub(super) const PREFIX: &str = "x-idempotent-";
pub(super) const QUEUE: Field = Field::Origin("queue");
pub(super) const EXPIRES_AT: Field = Field::Origin("expires-at");
/// Properties that copies and dead letters do not have, on every message.
pub(super) const EXPIRATION: Field = Field::Origin("expiration");
pub(super) const USER: Field = Field::Origin("user-id");
/// The prefix of a header that the broker would act on.
pub(super) const KEPT: &str = "x-idempotent-kept-";
/// The headers that the broker acts on. `CC` and `BCC` name further queues, to which a copy must not go again. If
/// `x-death` contains a cycle of queues, the broker drops the message, and a copy passes a retry queue. An exchange of
/// the plugin would delay a dead letter by `x-delay`, if an operator routes dead letters to such an exchange.
pub(super) const ACTED_ON: [&str; 4] = ["CC", "BCC", "x-death", PLUGIN_DELAY];
/// Maximum length of a text in bytes.
const MAX_TEXT: usize = 1024;

/// Returns the name of a header. The id of a message is a property.
pub(super) fn name_of(field: Field) -> ShortString {
    let name = if field == Field::LetterId { Field::Id.name() } else { field.name() };
    format!("{PREFIX}{name}").into()
}

/// The headers of this crate on one message.
#[derive(Default)]
pub(super) struct OwnHeaders(pub(super) HeaderTable);

impl OwnHeaders {
    /// Returns the headers of an envelope.
    pub(super) fn of(envelope: &Envelope) -> Self {
        let mut own = Self::default();
        envelope.write(|field, value| own.set(field, value));
        own
    }

    /// Returns the envelope of a message from this place.
    pub(super) fn envelope(&self, place: MessagePlace) -> Envelope {
        Envelope::read(place, |field| self.get(field))
    }

    /// Sets a value. A text is truncated to its maximum length.
    pub(super) fn set(&mut self, field: Field, value: Datum<'_>) {
        let value = match value {
            Datum::Text(text) => AMQPValue::LongString(start_of(text, MAX_TEXT).into()),
            Datum::Number(number) => AMQPValue::LongLongInt(i64::try_from(number).unwrap_or(i64::MAX)),
        };
        self.0.insert(name_of(field), value);
    }

    /// Returns the text of a value.
    pub(super) fn get(&self, field: Field) -> Option<Cow<'_, str>> {
        if self.0.is_empty() || matches!(field, Field::Id | Field::BusinessKey) {
            return None;
        }
        match self.0.get(&name_of(field))? {
            AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().map(Cow::Borrowed),
            number => Some(Cow::Owned(integer(number)?.to_string())),
        }
    }
}

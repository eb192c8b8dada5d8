//! The names and values of the headers that this crate sets. Their names begin with `x-idempotent-`.
use std::collections::BTreeMap;

use lapin::types::{AMQPValue, ShortString};

use crate::delay_queues::names::PLUGIN_DELAY;
use crate::headers::integer;

/// The headers of a message, ordered by name.
pub(super) type HeaderTable = BTreeMap<ShortString, AMQPValue>;

pub(super) const PREFIX: &str = "x-idempotent-";
pub(super) const ATTEMPT: &str = "x-idempotent-attempt";
pub(super) const FIRST_AT: &str = "x-idempotent-first-at";
pub(super) const LAST_AT: &str = "x-idempotent-last-at";
pub(super) const ATTEMPTS: &str = "x-idempotent-attempts";
pub(super) const DEATHS: &str = "x-idempotent-deaths";
pub(super) const REASON: &str = "x-idempotent-reason";
pub(super) const ID: &str = "x-idempotent-id";
pub(super) const QUEUE: &str = "x-idempotent-queue";
pub(super) const EXPIRES_AT: &str = "x-idempotent-expires-at";
pub(super) const EXPIRATION: &str = "x-idempotent-expiration";
pub(super) const USER: &str = "x-idempotent-user-id";
/// The prefix of a header that the broker would act on.
pub(super) const KEPT: &str = "x-idempotent-kept-";
/// The headers that the broker acts on. `CC` and `BCC` name further queues, to which a copy must not go again. If
/// `x-death` contains a cycle of queues, the broker drops the message, and a copy passes a retry queue. An exchange of
/// the plugin would delay a dead letter by `x-delay`, if an operator routes dead letters to such an exchange.
pub(super) const ACTED_ON: [&str; 4] = ["CC", "BCC", "x-death", PLUGIN_DELAY];
/// Maximum length of a text in bytes.
const MAX_TEXT: usize = 1024;

/// The headers of this crate on one message.
#[derive(Default)]
pub(super) struct OwnHeaders(pub(super) HeaderTable);

impl OwnHeaders {
    pub(super) fn set_number(&mut self, name: &'static str, value: impl Into<u64>) {
        let value = i64::try_from(value.into()).unwrap_or(i64::MAX);
        self.0.insert(name.into(), AMQPValue::LongLongInt(value));
    }

    /// Sets a text, truncated to its maximum length.
    pub(super) fn set_text(&mut self, name: &'static str, value: &str) {
        let end = value.floor_char_boundary(MAX_TEXT);
        self.0.insert(name.into(), AMQPValue::LongString(value[..end].into()));
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        u64::try_from(integer(self.0.get(name)?)?).ok()
    }

    pub(super) fn small_number(&self, name: &str) -> Option<u32> {
        u32::try_from(self.number(name)?).ok()
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().map(str::to_owned),
            _ => None,
        }
    }
}

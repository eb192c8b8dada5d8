//! Messages as a producer sends them.
use std::fmt;
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::{DelayError, DelayErrorKind, Headers};

use super::layout::LONGEST;

/// A message for a [`DelayQueue`](crate::DelayQueue), with its due time or priority.
///
/// ```
/// use std::time::Duration;
///
/// use idempotent_redis::DelayMessage;
///
/// // Updates a search index once, 5 s after the first of many changes.
/// let reindex = DelayMessage::merged("article-17", Duration::from_secs(5), b"17".to_vec());
/// // Delivered before all messages of priority 99.
/// let urgent = DelayMessage::priority(100, b"call back".to_vec()).header("trace", "abc");
/// // Debug output contains no bodies and keys.
/// assert!(!format!("{reindex:?} {urgent:?}").contains("17"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct DelayMessage {
    pub(crate) kind: MessageKind,
    pub(crate) basis: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) business_key: Option<String>,
    pub(crate) headers: Headers,
    pub(crate) body: Vec<u8>,
}

#[derive(Clone)]
pub(crate) enum MessageKind {
    Merged {
        key: String,
        range: Duration,
    },
    Priority(u32),
    Fixed(Timestamp),
    /// The same as `Fixed`, but a time in the past is due at once.
    Due(Timestamp),
    After(Duration),
}

/// Highest priority that is reserved for retries. A retry ranks by its remaining retries.
pub(crate) const MAX_RETRY_PRIORITY: u32 = 16;
/// Latest time that a score stores exactly, in µs: the year 2255.
const LATEST: u64 = 9_000_000_000_000_000;
/// Longest delay: a hundred years.
const LONGEST_DELAY: Duration = Duration::from_secs(100 * 366 * 86_400);

impl DelayMessage {
    /// Creates a message that is due `range` after the first message with this key.
    ///
    /// Messages with the key that are sent before that are merged into the first: their bodies and times are ignored.
    /// While the first one is in delivery, another message with the key is a message of its own.
    pub fn merged(key: impl Into<String>, range: Duration, body: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::Merged { key: key.into(), range }, body.into())
    }

    /// Creates a message that is due now. Higher priorities are delivered first; messages of equal priority are
    /// delivered in the order of sending. The priority must be more than 16, because lower ones are reserved for
    /// retries.
    pub fn priority(priority: u32, body: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::Priority(priority), body.into())
    }

    /// Creates a message that is due once `time` has passed, by the server's clock. The time must be in the future.
    pub fn at(time: Timestamp, body: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::Fixed(time), body.into())
    }

    /// Creates a message that is due from `time` on, by the server's clock, and at once if the time has passed.
    pub fn due(time: Timestamp, body: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::Due(time), body.into())
    }

    /// Creates a message that is due `delay` after the server has accepted it. A delay of zero makes it due at once.
    pub fn after(delay: Duration, body: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::After(delay), body.into())
    }

    fn new(kind: MessageKind, body: Vec<u8>) -> Self {
        Self { kind, basis: None, id: None, business_key: None, headers: Headers::default(), body }
    }

    /// Sets the id of the message.
    ///
    /// While a message with this id is waiting or in delivery, retries included, another one is not accepted. Merged
    /// messages use their key and accept no id.
    ///
    /// # Default
    /// An id assigned by the server
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the value that determines the slot. Messages with equal values share a slot and are ordered there. An id is
    /// unique within its slot.
    ///
    /// # Default
    /// The merge key or the id. Without either, slots are used in turn.
    pub fn slot_basis(mut self, basis: impl Into<String>) -> Self {
        self.basis = Some(basis.into());
        self
    }

    /// Sets the business key, for consumers that use one.
    ///
    /// # Default
    /// No business key
    pub fn business_key(mut self, key: impl Into<String>) -> Self {
        self.business_key = Some(key.into());
        self
    }

    /// Appends a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// Returns the value that determines the slot, if any.
    pub(crate) fn basis(&self) -> Option<&str> {
        let key = match &self.kind {
            MessageKind::Merged { key, .. } => Some(key),
            _ => self.id.as_ref(),
        };
        self.basis.as_ref().or(key).map(String::as_str)
    }

    /// Returns the name under which scripts find the message.
    pub(crate) fn name(&self) -> String {
        match (&self.kind, &self.id) {
            (MessageKind::Merged { key, .. }, _) => format!("m{key}"),
            (_, Some(id)) => format!("k{id}"),
            (_, None) => String::new(),
        }
    }

    /// Returns the letter of the kind, and its time, priority or delay.
    ///
    /// # Errors
    /// `Refused`, with the invalid value, the rule and the remedy.
    pub(crate) fn script_kind(&self) -> Result<(&'static str, u64), DelayError> {
        if let MessageKind::Merged { key, .. } = &self.kind {
            check_length("the merge key", key)?;
            if self.id.is_some() {
                return refuse("merged message has both a merge key and an id; leave out the id".to_owned());
            }
        }
        if let Some(id) = &self.id {
            check_length("the id", id)?;
        }
        match &self.kind {
            MessageKind::Merged { range, .. } => Ok(("m", check_range("time_range", *range)?)),
            MessageKind::Priority(priority) if *priority <= MAX_RETRY_PRIORITY => refuse(format!(
                "priority is {priority}; it must be more than {MAX_RETRY_PRIORITY}, since lower ones are reserved for retries"
            )),
            MessageKind::Priority(priority) => Ok(("p", u64::from(*priority))),
            MessageKind::Fixed(time) => Ok(("f", check_time("fixed_time", *time)?)),
            MessageKind::Due(time) => Ok(("f", check_time("the time", *time)?)),
            MessageKind::After(delay) => Ok(("a", check_delay("the delay", *delay)?)),
        }
    }

    pub(crate) fn takes_past(&self) -> bool {
        !matches!(self.kind, MessageKind::Fixed(_))
    }
}

pub(crate) fn check_length(what: &str, name: &str) -> Result<(), DelayError> {
    if (1..=LONGEST).contains(&name.len()) {
        return Ok(());
    }
    refuse(format!("{what} has {} bytes; it must have 1 to {LONGEST}; hash longer values", name.len()))
}

fn check_range(what: &str, range: Duration) -> Result<u64, DelayError> {
    if range < Duration::from_millis(1) {
        let remedy = "for immediate delivery use `DelayMessage::priority`";
        return refuse(format!("{what} is {range:?}; it must be more than 0 ms; {remedy}"));
    }
    check_delay(what, range)
}

fn check_delay(what: &str, delay: Duration) -> Result<u64, DelayError> {
    if delay > LONGEST_DELAY {
        return refuse(format!("{what} is {delay:?}, the limit is 100 years: check the unit"));
    }
    Ok(u64::try_from(delay.as_micros()).unwrap_or(LATEST))
}

fn check_time(what: &str, time: Timestamp) -> Result<u64, DelayError> {
    if time.0 > LATEST {
        return refuse(format!("{what} is {} µs since 1970, the limit is the year 2255: check the unit", time.0));
    }
    Ok(time.0)
}

pub(crate) fn refuse<T>(text: String) -> Result<T, DelayError> {
    Err(DelayError::new(DelayErrorKind::Refused, text))
}

/// Shows only the kind and sizes, because bodies, keys and headers may be sensitive.
impl fmt::Debug for DelayMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            MessageKind::Merged { .. } => "merged",
            MessageKind::Priority(_) => "priority",
            MessageKind::Fixed(_) => "fixed time",
            MessageKind::Due(_) => "due",
            MessageKind::After(_) => "after",
        };
        f.debug_struct("DelayMessage").field("kind", &kind).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// The receipt for an accepted message.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SendReceipt {
    /// Id of the message, for [`DelayQueue::cancel`](crate::DelayQueue::cancel) and in its deliveries.
    pub id: String,
    /// Due time, by the server's clock.
    pub at: Timestamp,
    /// True if this message was accepted. Otherwise, a message with the same key or id exists, and the other fields
    /// describe that one.
    pub is_new: bool,
}

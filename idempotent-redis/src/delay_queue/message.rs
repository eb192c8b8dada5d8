//! What a producer sends.
use std::fmt;
use std::time::Duration;

use idempotent_core::Micros;
use idempotent_mq::{DelayError, DelayErrorKind, Headers};

use super::layout::LONGEST;

/// A message for a [`DelayQueue`](crate::DelayQueue): when it is to be delivered, and what.
///
/// ```
/// use std::time::Duration;
///
/// use idempotent_redis::DelayMessage;
///
/// // A search index that is brought up to date once, 5 s after the first of many changes.
/// let reindex = DelayMessage::merged("article-17", Duration::from_secs(5), b"17".to_vec());
/// // Before all of priority 99.
/// let urgent = DelayMessage::priority(100, b"call back".to_vec()).header("trace", "abc");
/// // Bodies and keys are never shown.
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
    Fixed(Micros),
    /// As `Fixed`, and a time that is past is due at once.
    Due(Micros),
    After(Duration),
}

/// Priorities up to this are those of retries: by how many are left.
pub(crate) const MAX_RETRY_PRIORITY: u32 = 16;
/// What a score can hold exactly, in µs: the year 2255.
const LATEST: u64 = 9_000_000_000_000_000;
/// A hundred years.
const LONGEST_DELAY: Duration = Duration::from_secs(100 * 366 * 86_400);

impl DelayMessage {
    /// Due `range` after the first of this key; those that are sent until then are merged into it: neither their bodies
    /// nor their times count. One that is sent while the first is with a consumer is a message of its own.
    pub fn merged(key: impl Into<String>, range: Duration, body: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::Merged { key: key.into(), range }, body.into())
    }

    /// Due now, before all of smaller priorities, and behind those of the same that were sent before. More than 16:
    /// below that are messages that come back.
    pub fn priority(priority: u32, body: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::Priority(priority), body.into())
    }

    /// Due once this time is past, by the server's clock. It has to be in the future.
    pub fn at(time: Micros, body: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::Fixed(time), body.into())
    }

    /// As [`at`](Self::at); due from that time on, and at once if it is past.
    pub fn due(time: Micros, body: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::Due(time), body.into())
    }

    /// Due so long after the server has taken it; at once for zero.
    pub fn after(delay: Duration, body: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::After(delay), body.into())
    }

    fn new(kind: MessageKind, body: Vec<u8>) -> Self {
        Self { kind, basis: None, id: None, business_key: None, headers: Headers::default(), body }
    }

    /// Its id, chosen once. While one of this id is kept, waiting or with a consumer, another one is not taken; the first
    /// stands, its retries included. Not for merged messages, which go by their key.
    ///
    /// # Default
    /// One is made by the server.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// What decides its slot: messages of one basis lie in one, and are ordered there. An id is unique within its slot.
    ///
    /// # Default
    /// The merge key or the id; without any, slots take turns.
    pub fn slot_basis(mut self, basis: impl Into<String>) -> Self {
        self.basis = Some(basis.into());
        self
    }

    /// What the message is about, for consumers that go by that.
    ///
    /// # Default
    /// Nothing
    pub fn business_key(mut self, key: impl Into<String>) -> Self {
        self.business_key = Some(key.into());
        self
    }

    /// Adds a header behind those there are.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// What its slot is found by.
    pub(crate) fn basis(&self) -> Option<&str> {
        let key = match &self.kind {
            MessageKind::Merged { key, .. } => Some(key),
            _ => self.id.as_ref(),
        };
        self.basis.as_ref().or(key).map(String::as_str)
    }

    /// By which it is found again.
    pub(crate) fn name(&self) -> String {
        match (&self.kind, &self.id) {
            (MessageKind::Merged { key, .. }, _) => format!("m{key}"),
            (_, Some(id)) => format!("k{id}"),
            (_, None) => String::new(),
        }
    }

    /// Its kind's letter, and what is given with it.
    ///
    /// # Errors
    /// `Refused`, with what it is about, the rule and the remedy.
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

    /// Whether a time that is past will do.
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
        return refuse(format!("{what} is {delay:?}; it must be at most 100 years; is it in the right unit?"));
    }
    Ok(u64::try_from(delay.as_micros()).unwrap_or(LATEST))
}

fn check_time(what: &str, time: Micros) -> Result<u64, DelayError> {
    if time.0 > LATEST {
        return refuse(format!(
            "{what} is {} µs since 1970; it must be before the year 2255; is it in the right unit?",
            time.0
        ));
    }
    Ok(time.0)
}

pub(crate) fn refuse<T>(text: String) -> Result<T, DelayError> {
    Err(DelayError::new(DelayErrorKind::Refused, text))
}

/// Sizes and kinds only: bodies, keys and headers may be anything.
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

/// A message that is kept.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Sent {
    /// Its id: to call it off by, and what its deliveries are told by.
    pub id: String,
    /// When it is due, by the server's clock.
    pub at: Micros,
    /// Whether it is this one. If not, one of its key or id was kept already, of which the rest tells.
    pub is_new: bool,
}

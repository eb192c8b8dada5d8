//! A task to schedule.
use std::fmt;
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::{DelayError, DelayErrorKind, Headers};

/// A task for a [`DelayTable`](crate::DelayTable): its key, its due time, and its content.
///
/// ```
/// use std::time::Duration;
///
/// use idempotent_sqlx::ScheduledTask;
///
/// let limit = ScheduledTask::after("order-17", Duration::from_secs(30 * 60), b"17".to_vec()).header("trace", "abc");
/// // Neither keys nor bodies are ever shown.
/// assert!(!format!("{limit:?}").contains("17"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct ScheduledTask {
    pub(super) key: String,
    pub(super) when: DueTime,
    pub(super) headers: Headers,
    pub(super) body: Vec<u8>,
}

#[derive(Clone, Copy)]
pub(super) enum DueTime {
    At(Timestamp),
    After(Duration),
}

/// The maximum length of a key in bytes: the limit of an index in each database.
const LONGEST: usize = 255;
/// The maximum size of headers and body together, in bytes.
const LARGEST: usize = 64 << 20;
/// The maximum due time in µs: the year 2255, as in the delay queue on Redis.
const LATEST: u64 = 9_000_000_000_000_000;
/// The maximum delay: 100 years.
const LONGEST_DELAY: Duration = Duration::from_secs(100 * 366 * 86_400);

impl ScheduledTask {
    /// Creates a task that is due at `time`, by the database's clock; at once if that time is past. The key
    /// identifies the task for scheduling and cancelling, and is the id of its deliveries.
    pub fn at(key: impl Into<String>, time: Timestamp, body: impl Into<Vec<u8>>) -> Self {
        Self::new(key.into(), DueTime::At(time), body.into())
    }

    /// Creates a task that is due `delay` after it is written. The clock of this machine does not matter.
    pub fn after(key: impl Into<String>, delay: Duration, body: impl Into<Vec<u8>>) -> Self {
        Self::new(key.into(), DueTime::After(delay), body.into())
    }

    fn new(key: String, when: DueTime, body: Vec<u8>) -> Self {
        Self { key, when, headers: Headers::default(), body }
    }

    /// Adds a header after the existing ones.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// Checks the key, the size and the due time.
    ///
    /// # Errors
    /// The kind is `Refused`; the text names the part, the rule and the remedy.
    pub(super) fn check(&self) -> Result<(), DelayError> {
        check_key(&self.key)?;
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        let bytes = headers.saturating_add(self.body.len());
        if bytes > LARGEST {
            return refuse(format!(
                "the task has {bytes} bytes, the limit is {LARGEST}: store the payload elsewhere, and schedule a reference to it"
            ));
        }
        match self.when {
            DueTime::At(time) if time.0 > LATEST => {
                refuse(format!("the time is {} µs since 1970, the limit is the year 2255: check the unit", time.0))
            }
            DueTime::After(delay) if delay > LONGEST_DELAY => {
                refuse(format!("the delay is {delay:?}, the limit is 100 years: check the unit"))
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn check_key(key: &str) -> Result<(), DelayError> {
    if (1..=LONGEST).contains(&key.len()) {
        return Ok(());
    }
    refuse(format!("the key has {} bytes, allowed are 1 to {LONGEST}: hash a longer key", key.len()))
}

fn refuse<T>(text: String) -> Result<T, DelayError> {
    Err(DelayError::new(DelayErrorKind::Refused, text))
}

/// Sizes only: keys, bodies and headers may be anything.
impl fmt::Debug for ScheduledTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduledTask").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

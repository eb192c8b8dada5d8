//! The marks of retried entries: the number of the next attempt, which an entry of a stream cannot store.
use std::fmt;
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::Retry;

/// The attempt and the first delivery of an entry that is retried.
///
/// The hash `STREAM:attempts:GROUP` has one field for each marked entry. An entry without a failed attempt has no mark.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RetryMark {
    pub(crate) attempt: u32,
    pub(crate) first_at: Timestamp,
}

/// The lifetime of the hash after its last retry. A mark that is lost starts the attempts from 1.
const LIFETIME: Duration = Duration::from_secs(7 * 86_400);

impl RetryMark {
    /// Returns the mark of a retry, or `None` for a deferral before the first failure.
    pub(crate) fn of(retry: &Retry) -> Option<Self> {
        (retry.attempt > 1).then_some(Self { attempt: retry.attempt, first_at: retry.first_at })
    }

    /// Parses the text in the hash. An entry without a valid mark is a first attempt.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (attempt, first_at) = text.split_once(' ')?;
        Some(Self { attempt: attempt.parse().ok()?, first_at: Timestamp(first_at.parse().ok()?) })
    }

    /// Returns the lifetime of the hash in ms, at least twice the idle time after which entries are redelivered.
    pub(crate) fn lifetime(min_idle: Duration) -> u64 {
        u64::try_from(LIFETIME.max(min_idle * 2).as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for RetryMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.attempt, self.first_at.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_other_text_is_no_mark() {
        let mark = RetryMark { attempt: 70_000, first_at: Timestamp(u64::MAX) };
        assert_eq!(RetryMark::parse(&mark.to_string()), Some(mark));
        for text in ["", "2", "2 x", "x 2", "-1 2", "4294967296 2"] {
            assert_eq!(RetryMark::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_mark_lives_at_least_twice_as_long_as_an_entry_is_idle() {
        assert_eq!(RetryMark::lifetime(Duration::from_secs(1)), 7 * 86_400_000);
        assert_eq!(RetryMark::lifetime(LIFETIME), 14 * 86_400_000);
    }

    #[test]
    fn only_a_failed_attempt_has_a_mark() {
        let mut retry = Retry::after(Duration::ZERO, Timestamp(5));
        assert_eq!(RetryMark::of(&retry), Some(RetryMark { attempt: 2, first_at: Timestamp(5) }));
        retry.attempt = 1;
        assert_eq!(RetryMark::of(&retry), None);
    }
}

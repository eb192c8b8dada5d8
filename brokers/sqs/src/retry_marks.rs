//! The marks of retried messages, which a message of a queue cannot store.
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use idempotent_core::Timestamp;
use idempotent_mq::Retry;

/// The data of a message that is retried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RetryMark {
    /// The number of the next attempt.
    pub(crate) attempt: u32,
    /// The time of the first delivery.
    pub(crate) first_at: Timestamp,
}

/// The marks by the ids of the messages, in memory. A message whose mark is lost starts again with its first attempt.
#[derive(Debug, Default)]
pub(crate) struct RetryMarks(Mutex<Generations>);

/// Two generations of marks. Other processes settle some of the messages, so old marks are dropped.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<String, RetryMark>,
    old: HashMap<String, RetryMark>,
}

/// The maximum number of marks of one generation.
const MOST: usize = 10_000;

impl RetryMarks {
    pub(crate) fn get(&self, message: &str) -> Option<RetryMark> {
        let all = self.lock();
        all.young.get(message).or_else(|| all.old.get(message)).copied()
    }

    pub(crate) fn put(&self, message: &str, retry: &Retry) {
        let mut all = self.lock();
        if all.young.len() >= MOST {
            all.old = std::mem::take(&mut all.young);
        }
        let mark = RetryMark { attempt: retry.attempt, first_at: retry.first_at };
        all.young.insert(message.to_owned(), mark);
    }

    /// Removes the mark of a settled message.
    pub(crate) fn remove(&self, message: &str) {
        let mut all = self.lock();
        all.young.remove(message);
        all.old.remove(message);
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_new_mark_replaces_an_old_one_and_a_removed_one_stays_away() {
        let (marks, mut retry) = (RetryMarks::default(), Retry::after(Duration::ZERO, Timestamp(7)));
        marks.put("m", &retry);
        for number in 1..MOST {
            marks.put(&number.to_string(), &retry);
        }
        retry.attempt = 3;
        // The first generation is full.
        marks.put("m", &retry);
        assert_eq!(marks.get("m"), Some(RetryMark { attempt: 3, first_at: Timestamp(7) }));
        assert_eq!(marks.get("1").map(|mark| mark.attempt), Some(2));
        marks.remove("m");
        assert_eq!(marks.get("m"), None);
    }

    #[test]
    fn the_oldest_marks_are_dropped() {
        let (marks, retry) = (RetryMarks::default(), Retry::after(Duration::ZERO, Timestamp(7)));
        for number in 0..=2 * MOST {
            marks.put(&number.to_string(), &retry);
        }
        assert_eq!(marks.get("0"), None);
        assert!(marks.get(&MOST.to_string()).is_some());
    }
}

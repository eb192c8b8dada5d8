//! The marks of retried and returned messages, which a message of a queue cannot store.
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use idempotent_core::Timestamp;
use idempotent_mq::Retry;

/// The data of a message that is retried or returned.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct RetryMark {
    /// The number of the next attempt and the time of the first delivery, if the message was retried.
    pub(crate) retried: Option<(u32, Timestamp)>,
    /// The number of receives that ended by a retry or a return in this process. SQS counts them like receives that end by a crash.
    pub(crate) settled: u32,
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

    /// Counts a receive that ended by a retry, or by a return.
    pub(crate) fn put(&self, message: &str, retry: Option<&Retry>) {
        let mut mark = self.get(message).unwrap_or_default();
        mark.settled = mark.settled.saturating_add(1);
        if let Some(retry) = retry {
            mark.retried = Some((retry.attempt, retry.first_at));
        }
        let mut all = self.lock();
        if all.young.len() >= MOST {
            all.old = std::mem::take(&mut all.young);
        }
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
        marks.put("m", Some(&retry));
        for number in 1..MOST {
            marks.put(&number.to_string(), None);
        }
        // The first generation is full.
        marks.put("m", None);
        assert_eq!(marks.get("m"), Some(RetryMark { retried: Some((2, Timestamp(7))), settled: 2 }));
        retry.attempt = 3;
        marks.put("m", Some(&retry));
        assert_eq!(marks.get("m"), Some(RetryMark { retried: Some((3, Timestamp(7))), settled: 3 }));
        assert_eq!(marks.get("1"), Some(RetryMark { retried: None, settled: 1 }));
        marks.remove("m");
        assert_eq!(marks.get("m"), None);
    }

    #[test]
    fn the_oldest_marks_are_dropped() {
        let marks = RetryMarks::default();
        for number in 0..=2 * MOST {
            marks.put(&number.to_string(), None);
        }
        assert_eq!(marks.get("0"), None);
        assert!(marks.get(&MOST.to_string()).is_some());
    }
}

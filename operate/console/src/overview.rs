//! Earlier counts, from which the overview computes rates, and counts of stores that are read rarely.
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotent_core::{ExecutorCounts, KeyFilter, PageLimits, StateKind, Store};
use idempotent_operate::{BoundedCount, OperateError, StateName, list};
use tokio::time::Instant;

use crate::targets::{answer, answer_within};

/// The shortest time between two samples.
const STEP: Duration = Duration::from_secs(5);
/// The longest window of a rate.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// The samples of each executor, taken when the overview is shown.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<HashMap<String, VecDeque<(Instant, ExecutorCounts)>>>);

impl Samples {
    /// Records the counts of an executor, and returns the newest counts that are at least `window` old, with their age.
    pub(crate) fn record(
        &self,
        name: &str,
        counts: &ExecutorCounts,
        window: Duration,
    ) -> Option<(Duration, ExecutorCounts)> {
        let now = Instant::now();
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = samples.entry(name.to_owned()).or_default();
        if samples.back().is_none_or(|(last, _)| now - *last >= STEP) {
            samples.push_back((now, counts.clone()));
        }
        // One sample before the longest window is needed for its rate.
        while samples.get(1).is_some_and(|(second, _)| now - *second >= LONGEST) {
            samples.pop_front();
        }
        let before = samples.iter().rev().find(|(at, _)| now - *at >= window);
        before.map(|(at, counts)| (now - *at, counts.clone()))
    }
}

/// The time for which a reading of a target is shown. A queue may have to read all its letters to count them.
const READING: Duration = Duration::from_secs(30);
/// The time for which the error of a reading is shown.
const FAILED: Duration = Duration::from_secs(10);
/// The longest time of a reading. A page waits for [`ANSWER`] only.
const LONGEST_READING: Duration = Duration::from_secs(15);
/// The number of records that one reading examines.
const EXAMINED: usize = 20_000;

/// The numbers of keys that may need an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyCounts {
    pub(crate) consuming: BoundedCount,
    pub(crate) orphaned: BoundedCount,
    pub(crate) failed: BoundedCount,
    pub(crate) dead: BoundedCount,
    /// The number of records that the reading examined.
    pub(crate) examined: usize,
}

/// The last reading of each target: the keys of a store, its checks, or the dead letters of a queue.
#[derive(Debug)]
pub(crate) struct Readings<T>(Mutex<HashMap<String, Slot<T>>>);

/// The last reading of one target. One task at a time reads it.
type Slot<T> = Arc<tokio::sync::Mutex<Option<Reading<T>>>>;

/// The time of a reading, and its result.
type Reading<T> = (Instant, Result<T, String>);

impl<T> Default for Readings<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone + Send + 'static> Readings<T> {
    /// Returns the last reading of a target with its age. Reads the target if the last reading is old, in a task that continues if
    /// this call has no answer in time.
    pub(crate) async fn of<E: fmt::Display>(
        &self,
        name: &str,
        read: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<(Duration, T), String> {
        let slot = self.slot(name);
        let reading = tokio::spawn(async move {
            let mut last = slot.lock().await;
            let is_current = |(at, last): &&Reading<T>| at.elapsed() < if last.is_ok() { READING } else { FAILED };
            match last.as_ref().filter(is_current) {
                Some(reading) => reading.clone(),
                None => {
                    let read = answer_within(LONGEST_READING, read).await;
                    last.insert((Instant::now(), read)).clone()
                }
            }
        });
        let (at, read) = answer(reading).await?;
        read.map(|read| (at.elapsed(), read))
    }

    /// Forgets the reading of a target that has changed.
    pub(crate) async fn forget(&self, name: &str) {
        *self.slot(name).lock().await = None;
    }

    fn slot(&self, name: &str) -> Slot<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default().clone()
    }
}

/// Counts the keys of a store that may need an operator.
pub(crate) async fn count_keys(store: &dyn Store) -> Result<KeyCounts, OperateError> {
    let limits = PageLimits { keys: PageLimits::MOST_KEYS, examined: EXAMINED };
    let states = [StateKind::Consuming, StateKind::Failed, StateKind::Dead];
    let all = list(store, &KeyFilter::of_states(&states), None, limits).await?;
    let mut orphaned = KeyFilter::of_states(&[StateKind::Consuming]);
    orphaned.orphaned = true;
    let orphaned = list(store, &orphaned, None, limits).await?;
    let of = |state| all.keys.iter().filter(|(_, record)| record.state == state).count();
    let count = |count: usize, is_exact| BoundedCount::new(count as u64, is_exact);
    Ok(KeyCounts {
        consuming: count(of(StateName::Consuming), all.next.is_none()),
        orphaned: count(orphaned.keys.len(), orphaned.next.is_none()),
        failed: count(of(StateName::Failed), all.next.is_none()),
        dead: count(of(StateName::Dead), all.next.is_none()),
        examined: all.examined,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;
    use idempotent_core::{Executor, MemoryStore};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_target_is_read_again_once_its_reading_is_old_and_earlier_after_an_error() {
        let readings = Readings::default();
        let age = async |after, read: Result<u64, &'static str>| {
            tokio::time::advance(after).await;
            readings.of("orders", async move { read }).await
        };
        let (now, moment) = (Duration::ZERO, Duration::from_millis(1));
        assert_eq!(age(now, Ok(1)).await, Ok((now, 1)));
        assert_eq!(age(READING - moment, Ok(2)).await, Ok((READING - moment, 1)));
        assert_eq!(age(moment, Err("refused")).await, Err("refused".to_owned()));
        assert_eq!(age(FAILED - moment, Ok(3)).await, Err("refused".to_owned()));
        assert_eq!(age(moment, Ok(4)).await, Ok((now, 4)));
        readings.forget("orders").await;
        assert_eq!(age(now, Ok(5)).await, Ok((now, 5)));
    }

    #[tokio::test(start_paused = true)]
    async fn callers_share_one_reading_which_continues_when_they_have_no_answer_in_time() {
        let (readings, reads) = (Readings::default(), Arc::new(AtomicU32::new(0)));
        let slow = || {
            let reads = reads.clone();
            readings.of("orders", async move {
                tokio::time::sleep(Duration::from_secs(9)).await;
                Ok::<_, String>(reads.fetch_add(1, Ordering::Relaxed))
            })
        };
        for answer in join_all((0..100).map(|_| slow())).await {
            assert_eq!(answer, Err("no answer within 2 s".to_owned()));
        }
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(slow().await.map(|(_, number)| number), Ok(0));
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_has_the_newest_sample_before_its_window_and_samples_are_bounded() {
        let counts = Executor::new(MemoryStore::new()).counts();
        let samples = Samples::default();
        let minute = Duration::from_secs(60);
        assert!(samples.record("a", &counts, minute).is_none());
        for _ in 0..400 {
            tokio::time::advance(STEP).await;
            let found = samples.record("a", &counts, minute);
            assert!(found.is_none_or(|(age, _)| (minute..minute + STEP).contains(&age)));
        }
        assert!(samples.record("a", &counts, LONGEST).is_some());
        let kept = samples.0.lock().unwrap()["a"].len();
        assert!(kept <= (LONGEST.as_secs() / STEP.as_secs()) as usize + 2, "{kept}");
    }
}

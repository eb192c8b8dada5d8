//! Earlier counts of the executors, from which the overview computes rates.
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use idempotent_core::ExecutorCounts;
use tokio::time::Instant;

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{Executor, MemoryStore};

    use super::*;

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

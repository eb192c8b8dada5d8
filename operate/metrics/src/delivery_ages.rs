//! The ages of messages at their settlement, by the group of their consumer.
use std::collections::HashMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use metrics::Histogram;

use crate::catalogue;
use crate::recording::Recording;

/// The histograms of the groups.
#[derive(Default)]
pub(crate) struct DeliveryAges(RwLock<HashMap<Box<str>, Histogram>>);

impl DeliveryAges {
    /// Records the age of a message. Groups over the limit share one histogram.
    pub(crate) fn record(&self, recording: &Recording, max_groups: usize, group: &str, age: Duration) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(histogram) = known.get(group) {
            return histogram.record(age.as_secs_f64());
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let group = if known.len() < max_groups { group } else { "other" };
        let new = || recording.histogram(&catalogue::CONSUMER_AGE, &[group]);
        known.entry(group.into()).or_insert_with(new).record(age.as_secs_f64());
    }
}

impl fmt::Debug for DeliveryAges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryAges").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn groups_over_the_limit_share_one_histogram() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (handle, ages) = (recorder.handle(), DeliveryAges::default());
        let recording = Recording::by(Arc::new(recorder));
        ["first", "second", "third"].iter().for_each(|group| ages.record(&recording, 1, group, Duration::from_secs(1)));
        let scrape = handle.render();
        for (group, count) in [("first", 1), ("other", 2)] {
            assert!(scrape.contains(&format!("age_seconds_count{{group=\"{group}\"}} {count}")), "{scrape}");
        }
        assert!(!scrape.contains("group=\"second\""), "{scrape}");
    }
}

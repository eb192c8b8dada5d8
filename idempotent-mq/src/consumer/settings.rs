//! Settings of a consumer in a configuration file.
use idempotent_core::__private::{HumaneSize, HumaneTime};
use serde::Deserialize;

use crate::{ConsumerBuilder, Schedule, Source};

/// The settings of a consumer that a configuration file contains, under the names of the methods of [`ConsumerBuilder`].
///
/// Durations are written as `"10s"` or `"1h 30m"`, and sizes as `"16MiB"` or as a number of bytes. An unknown name is an error that
/// lists the known ones. Values out of range are errors of [`build`](ConsumerBuilder::build).
///
/// ```
/// use idempotent_mq::ConsumerSettings;
///
/// let text = r#"{ "concurrency": 16, "grace": "30s", "schedule": { "first": "1s", "most": "5m", "jitter": 20 } }"#;
/// let settings: ConsumerSettings = serde_json::from_str(text)?;
/// # drop(settings);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerSettings {
    concurrency: Option<usize>,
    prefetch: Option<usize>,
    claim_ahead: Option<usize>,
    grace: Option<HumaneTime>,
    schedule: Option<Schedule>,
    max_deliveries: Option<u32>,
    max_body: Option<HumaneSize>,
    alert_after: Option<u32>,
    skip_consumed: Option<bool>,
}

impl<S: Source> ConsumerBuilder<S> {
    /// Applies the settings of a configuration file. A setting that the file does not contain stays as it is.
    pub fn settings(mut self, settings: &ConsumerSettings) -> Self {
        self.concurrency = settings.concurrency.unwrap_or(self.concurrency);
        self.prefetch = settings.prefetch.or(self.prefetch);
        self.claims_ahead = settings.claim_ahead.unwrap_or(self.claims_ahead);
        self.grace = settings.grace.map_or(self.grace, Into::into);
        self.schedule = settings.schedule.clone().or(self.schedule);
        self.max_deliveries = settings.max_deliveries.or(self.max_deliveries);
        let max_body = settings.max_body.map(|bytes| usize::try_from(u64::from(bytes)).unwrap_or(usize::MAX));
        self.max_body = max_body.unwrap_or(self.max_body);
        self.alert_after = settings.alert_after.unwrap_or(self.alert_after);
        self.skip_consumed = settings.skip_consumed.unwrap_or(self.skip_consumed);
        self
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use idempotent_core::{Executor, MemoryStore};

    use super::*;
    use crate::{Consumer, MemoryQueue, MemorySource};

    fn with(text: &str) -> ConsumerBuilder<MemorySource> {
        let builder =
            Consumer::builder(MemoryQueue::new("orders").source(), "billing", Executor::new(MemoryStore::new()));
        builder.concurrency(3).prefetch(9).settings(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn each_setting_of_a_file_is_applied_and_the_others_stay() {
        let all = with(
            r#"{ "concurrency": 4, "prefetch": 40, "claim_ahead": 2, "grace": "1m 30s", "schedule": { "delays": ["7s"] },
                "max_deliveries": 5, "max_body": "1MiB", "alert_after": 6, "skip_consumed": false }"#,
        );
        assert_eq!((all.concurrency, all.prefetch, all.claims_ahead), (4, Some(40), 2));
        assert_eq!((all.grace, all.max_deliveries, all.max_body), (Duration::from_secs(90), Some(5), 1 << 20));
        assert_eq!((all.alert_after, all.skip_consumed), (6, false));
        assert_eq!(all.schedule.unwrap().after(1, 0), Duration::from_secs(7));
        let (none, default) = (with("{}"), with(r#"{ "concurrency": 8 }"#));
        assert_eq!((none.concurrency, none.prefetch, default.concurrency), (3, Some(9), 8));
        assert_eq!(
            (none.grace, none.max_body, none.alert_after),
            (default.grace, default.max_body, default.alert_after)
        );
        assert!(none.schedule.is_none() && none.skip_consumed && none.max_deliveries.is_none());
    }

    #[test]
    fn an_unknown_setting_and_a_duration_without_a_unit_are_errors_that_name_them() {
        for (text, part) in [(r#"{ "concurency": 4 }"#, "`concurency`"), (r#"{ "grace": 10 }"#, "`10` has no unit")] {
            let error = serde_json::from_str::<ConsumerSettings>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}

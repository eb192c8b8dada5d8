//! Access to the recorder, and the form of labels.
use std::fmt;
use std::sync::Arc;

use idempotent_core::__private::start_of;
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};

use crate::catalogue::{MetricInfo, MetricKind};

/// The longest value of a label in bytes; a longer one is cut.
const MAX_LABEL: usize = 120;

static METADATA: Metadata<'static> = Metadata::new("idempotent", Level::INFO, None);

/// The recorder of the metrics: the process's, or one of its own.
#[derive(Clone, Default)]
pub(crate) struct Recording(Option<Arc<dyn Recorder + Send + Sync>>);

impl Recording {
    pub(crate) fn by(recorder: Arc<dyn Recorder + Send + Sync>) -> Self {
        Self(Some(recorder))
    }

    pub(crate) fn counter(&self, metric: &MetricInfo, values: &[&str]) -> Counter {
        self.with(metric, values, |recorder, key| {
            recorder.describe_counter(metric.name.into(), metric.unit, metric.help.into());
            recorder.register_counter(key, &METADATA)
        })
    }

    pub(crate) fn gauge(&self, metric: &MetricInfo, values: &[&str]) -> Gauge {
        self.with(metric, values, |recorder, key| {
            recorder.describe_gauge(metric.name.into(), metric.unit, metric.help.into());
            recorder.register_gauge(key, &METADATA)
        })
    }

    pub(crate) fn histogram(&self, metric: &MetricInfo, values: &[&str]) -> Histogram {
        debug_assert!(matches!(metric.kind, MetricKind::Histogram(_)), "{} is no histogram", metric.name);
        self.with(metric, values, |recorder, key| {
            recorder.describe_histogram(metric.name.into(), metric.unit, metric.help.into());
            recorder.register_histogram(key, &METADATA)
        })
    }

    /// Calls `register` with the recorder, and with the key of the metric whose labels have these values.
    fn with<T>(&self, metric: &MetricInfo, values: &[&str], register: impl FnOnce(&dyn Recorder, &Key) -> T) -> T {
        debug_assert_eq!(metric.labels.len(), values.len(), "labels of {}", metric.name);
        let labels = metric.labels.iter().zip(values).map(|(name, value)| Label::new(*name, label_value(value)));
        let key = Key::from_parts(metric.name, labels.collect::<Vec<_>>());
        match &self.0 {
            Some(own) => register(&**own, &key),
            None => metrics::with_recorder(|recorder| register(recorder, &key)),
        }
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Recording(own)" } else { "Recording(global)" })
    }
}

/// Returns the text as the value of a label: at most 120 bytes, without control characters.
fn label_value(text: &str) -> String {
    let short = start_of(text, MAX_LABEL);
    short.chars().map(|char| if char.is_control() { '_' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_short_and_has_no_control_characters() {
        assert_eq!(label_value("orders \"v2\"\nnew"), "orders \"v2\"_new");
        assert_eq!(label_value(&"é".repeat(5_000)), "é".repeat(60));
    }
}

//! The metrics of an executor's store calls.
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use idempotent_core::{StoreError, StoreErrorKind};
use metrics::Histogram;

use crate::catalogue;
use crate::recording::Recording;

/// The measured steps, each with the handle for calls without an error.
#[derive(Default)]
pub(crate) struct StoreMetrics {
    answered: [OnceLock<Histogram>; STEPS.len()],
}

const STEPS: [&str; 5] = ["claim", "complete", "release", "renew", "peek"];

impl StoreMetrics {
    /// Records the duration of a call. Only the first call of a step, and failed calls, look up a handle.
    pub(crate) fn answered(
        &self,
        (recording, store): (&Recording, &str),
        step: &'static str,
        error: Option<&StoreError>,
        elapsed: Duration,
    ) {
        let result = error.map_or("ok", |error| error.kind().name());
        let handle = || recording.histogram(&catalogue::STORE_DURATION, &[store, step, result]);
        match STEPS.iter().position(|known| *known == step).filter(|_| error.is_none()) {
            Some(at) => self.answered[at].get_or_init(handle).record(elapsed.as_secs_f64()),
            None => handle().record(elapsed.as_secs_f64()),
        }
    }

    /// Counts a failed call.
    pub(crate) fn failed((recording, store): (&Recording, &str), step: &'static str, kind: StoreErrorKind) {
        recording.counter(&catalogue::STORE_ERRORS, &[store, step, kind.name()]).increment(1);
    }
}

impl fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreMetrics").finish_non_exhaustive()
    }
}

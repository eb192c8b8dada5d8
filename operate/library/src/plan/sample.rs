//! A sample of the records of a running store.
use std::time::Duration;

use idempotent_core::{KeyFilter, PageLimits, StateKind, Store};

use super::workload::Workload;
use crate::OperateError;

/// The size and the age of some consumed records, which are a fair sample in a store that lists by hash.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordSample {
    /// The number of sampled records.
    pub records: usize,
    /// The age of the oldest one.
    pub age: Duration,
    /// The mean length of their storage keys in bytes.
    pub key_bytes: f64,
    /// The share of records with a fingerprint.
    pub fingerprints: f64,
    /// The share of records with a result.
    pub results: f64,
    /// The mean length of these results in bytes.
    pub result_bytes: f64,
}

impl RecordSample {
    /// Reads at most `most` consumed records of a namespace, without their results. Returns `None` if there is none.
    ///
    /// # Errors
    /// [`Unsupported`](OperateError::Unsupported) if the store cannot list its records, or the error of the store.
    ///
    /// # Cancellation
    /// The call only reads, so a drop has no effect.
    pub async fn take(store: &dyn Store, namespace: &str, most: usize) -> Result<Option<Self>, OperateError> {
        let search = store.capabilities().search.ok_or(OperateError::Unsupported { action: "list its records" })?;
        let mut filter = KeyFilter::of_states(&[StateKind::Consumed]);
        filter.namespace = Some(namespace.to_owned());
        let (mut sample, mut bytes, mut after) = (Self::default(), 0, None);
        let (mut fingerprints, mut results, mut examined, mut names) = (0, 0, 0, 0);
        while sample.records < most && examined < 10 * most {
            let limits = PageLimits { keys: most - sample.records, examined: most };
            let page = search.search(&filter, after, limits).await?;
            for entry in &page.entries {
                sample.records += 1;
                names += entry.key.as_str().len();
                sample.age = sample.age.max(page.now - entry.record.updated_at);
                fingerprints += usize::from(entry.record.fingerprint.is_some());
                results += usize::from(entry.result_bytes.is_some());
                bytes += entry.result_bytes.unwrap_or_default();
            }
            (examined, after) = (examined + page.examined.max(1), page.next);
            if after.is_none() {
                break;
            }
        }
        if sample.records == 0 {
            return Ok(None);
        }
        sample.key_bytes = names as f64 / sample.records as f64;
        sample.fingerprints = fingerprints as f64 / sample.records as f64;
        sample.results = results as f64 / sample.records as f64;
        sample.result_bytes = bytes as f64 / results.max(1) as f64;
        Ok(Some(sample))
    }

    /// Returns the workload of a store with this number of keys. The keys were written at a constant rate during the age of the
    /// oldest sampled record.
    #[must_use]
    pub fn workload(&self, keys: u64) -> Workload {
        let age = self.age.max(Duration::from_millis(1));
        let mut load = Workload::new(keys as f64 / age.as_secs_f64(), age);
        load.key_bytes = self.key_bytes.max(1.0);
        (load.fingerprints, load.results, load.result_bytes) = (self.fingerprints, self.results, self.result_bytes);
        load
    }
}

impl Default for RecordSample {
    /// Returns an empty sample.
    fn default() -> Self {
        Self { records: 0, age: Duration::ZERO, key_bytes: 0.0, fingerprints: 0.0, results: 0.0, result_bytes: 0.0 }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{Call, DefaultReply, Executor, Fingerprint, Handler, Identity, Json, Rejection, Scene};

    use super::*;

    #[tokio::test]
    async fn a_sample_has_no_more_records_than_asked_for_of_ten_times_as_many_examined() {
        // Few records are consumed, or half of them.
        for every in [20, 2] {
            let executor = Executor::new(idempotent::connect("sqlite::memory:").await.unwrap());
            for number in 0..300_u32 {
                let handler = Handler::<DefaultReply, Json, _, _>::new(async || match number % every {
                    0 => Ok(number),
                    _ => Err(Rejection::Mismatch),
                });
                let call = Call::new(Identity::new(Scene::Mq, "orders", &number));
                let _ = executor.run(call, handler.permanent(|_| true)).await;
            }
            let states = KeyFilter::of_states(&[StateKind::Consumed, StateKind::Failed]);
            let page = executor.store().capabilities().search.unwrap().search(
                &states,
                None,
                PageLimits { keys: 300, examined: 300 },
            );
            let entries = page.await.unwrap().entries;
            let is_consumed: Vec<_> =
                entries.iter().map(|entry| entry.record.state.kind() == StateKind::Consumed).collect();
            assert_eq!(is_consumed.len(), 300);
            for most in 1..=12 {
                let first = is_consumed[..10 * most].iter().filter(|is_consumed| **is_consumed).count();
                let sample = RecordSample::take(executor.store(), "idempotent", most).await.unwrap();
                assert_eq!(sample.map_or(0, |sample| sample.records), first.min(most), "of {most}");
            }
        }
    }

    #[tokio::test]
    async fn a_sample_has_the_shares_of_results_and_of_fingerprints() {
        let executor = Executor::new(idempotent::connect("sqlite::memory:").await.unwrap());
        assert_eq!(RecordSample::take(executor.store(), "idempotent", 100).await.unwrap(), None);
        for number in 0..40_u32 {
            let call = Call::new(Identity::new(Scene::Mq, "orders", &number));
            let call = if number % 4 == 0 { call.fingerprint(Ok(Fingerprint::of_bytes(b"body"))) } else { call };
            if number % 2 == 0 {
                let handler =
                    Handler::<DefaultReply, Json, _, _>::new(async || Ok::<_, Rejection>("12345678".to_owned()));
                executor.run(call, handler).await.unwrap();
            } else {
                let handler = Handler::<DefaultReply, Json, _, _>::new(async || Ok::<_, Rejection>(()));
                executor.run(call, handler).await.unwrap();
            }
        }
        let all = RecordSample::take(executor.store(), "idempotent", 100).await.unwrap().unwrap();
        assert_eq!((all.records, all.fingerprints, all.results), (40, 0.25, 0.5));
        assert_eq!(all.key_bytes, "idempotent:mq:orders:{}".len() as f64 + 22.0);
        assert_eq!(all.result_bytes, 10.0, "with quotation marks");
        assert_eq!(RecordSample::take(executor.store(), "idempotent", 10).await.unwrap().unwrap().records, 10);
        assert_eq!(RecordSample::take(executor.store(), "other", 10).await.unwrap(), None);
    }

    #[test]
    fn a_workload_has_the_keys_of_the_store() {
        let sample = RecordSample { records: 10, age: Duration::from_secs(50), ..RecordSample::default() };
        let load = sample.workload(1_000);
        assert_eq!((load.rate, load.live()), (20.0, 1_000.0));
        assert!(RecordSample::default().workload(5).rate.is_finite());
    }
}

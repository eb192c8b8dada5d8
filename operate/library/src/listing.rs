//! Reading of one key, and of pages of keys.
use std::num::NonZeroU32;
use std::time::Duration;

use idempotent_core::{Identity, Key, KeyFilter, PageLimits, Scene, Store, Timestamp};

use crate::{OperateError, RecordSummary, UnreadableSummary};

/// A page of keys.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyPage {
    /// The keys that the filter selects, each with its record. In no particular order.
    pub keys: Vec<(Key, RecordSummary)>,
    /// The selected records that the store cannot read.
    pub unreadable: Vec<UnreadableSummary>,
    /// The number of records that were examined.
    pub examined: usize,
    /// The cursor of the next page, or `None` at the end.
    pub next: Option<u128>,
}

/// The largest number of records that one request examines.
const REQUEST: usize = 20_000;
/// The requests per second of a listing with a rate. Workers wait for the server during a request, so its size follows the rate.
const REQUESTS_PER_SECOND: u32 = 100;

/// Returns the record of one key, or `None` if the key is absent. Writes nothing.
///
/// # Errors
/// [`Unsupported`](OperateError::Unsupported) if the store cannot read a record with its time, or the error of the
/// store.
///
/// # Cancellation
/// The call only reads, so a drop has no effect.
pub async fn inspect(store: &dyn Store, key: &Key) -> Result<Option<RecordSummary>, OperateError> {
    let inspect = store.capabilities().inspect.ok_or(OperateError::Unsupported { action: "inspect a record" })?;
    let seen = inspect.inspect(key).await?;
    Ok(seen.map(|seen| RecordSummary::new(key, &seen.record, seen.now)))
}

/// Returns the keys after the cursor `after` that `filter` selects. Writes nothing, and loads no results.
///
/// The page ends when it contains enough keys, when enough records were examined, or when the store has no more
/// records. Listings use one pass over the records, so pass [`KeyPage::next`] to the next call until it is `None`. A key
/// that exists during all calls is listed once. A record that cannot be read is in [`KeyPage::unreadable`].
///
/// # Errors
/// [`Unsupported`](OperateError::Unsupported) if the store has no [`Search`](idempotent_core::Search), or the error of the
/// store.
///
/// # Cancellation
/// The call only reads, so a drop has no effect.
pub async fn list(
    store: &dyn Store,
    filter: &KeyFilter,
    after: Option<u128>,
    limits: PageLimits,
) -> Result<KeyPage, OperateError> {
    list_paced(store, filter, after, limits, None).await
}

/// Returns the same page as [`list`], and examines at most `rate` records per second on average, so that workers are not
/// delayed.
///
/// # Errors
/// Same as [`list`].
///
/// # Cancellation
/// Same as [`list`].
pub async fn list_paced(
    store: &dyn Store,
    filter: &KeyFilter,
    after: Option<u128>,
    limits: PageLimits,
    rate: Option<NonZeroU32>,
) -> Result<KeyPage, OperateError> {
    let search = store.capabilities().search.ok_or(OperateError::Unsupported { action: "list its records" })?;
    let mut page = KeyPage { keys: Vec::new(), unreadable: Vec::new(), examined: 0, next: after };
    let started = tokio::time::Instant::now();
    loop {
        let keys = limits.keys.saturating_sub(page.keys.len() + page.unreadable.len());
        let examined = limits.examined.saturating_sub(page.examined);
        if keys == 0 || examined == 0 {
            return Ok(page);
        }
        let request = rate.map_or(REQUEST, |rate| rate.get().div_ceil(REQUESTS_PER_SECOND) as usize).min(REQUEST);
        let found = search.search(filter, page.next, PageLimits { keys, examined: examined.min(request) }).await?;
        page.examined += found.examined;
        page.keys.extend(found.entries.into_iter().map(|entry| {
            let summary = RecordSummary::of_entry(&entry, found.now);
            (entry.key, summary)
        }));
        page.unreadable.extend(found.unreadable.into_iter().map(UnreadableSummary::from));
        page.next = found.next;
        if page.next.is_none() {
            return Ok(page);
        }
        if let Some(rate) = rate {
            tokio::time::sleep_until(started + time_for(page.examined, rate)).await;
        }
    }
}

/// Returns the time in which this number of records is examined at a rate per second.
fn time_for(examined: usize, rate: NonZeroU32) -> Duration {
    Duration::from_secs_f64(examined as f64 / f64::from(rate.get()))
}

/// Returns the store's time, by which leases and ages are measured.
///
/// # Errors
/// [`Unsupported`](OperateError::Unsupported) if the store keeps no order tables, whose read returns the time, or the
/// error of the store.
pub async fn store_time(store: &dyn Store, namespace: Option<&str>) -> Result<Timestamp, OperateError> {
    let order = store.capabilities().order.ok_or(OperateError::Unsupported { action: "report its time" })?;
    let stream = Identity::new(Scene::Named("operate".into()), "time", "now").key(namespace.unwrap_or("idempotent"))?;
    Ok(order.load(&stream).await?.now)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use idempotent_core::{Call, DefaultReply, Executor, Handler, Json, Rejection, StateKind};

    use super::*;

    /// Returns a store with 40 consumed keys and 5 failed ones.
    async fn store() -> Executor {
        let executor = Executor::new(idempotent::connect("sqlite::memory:").await.unwrap());
        for number in 0..45_u32 {
            let handler = Handler::<DefaultReply, Json, _, _>::new(async || match number {
                0..40 => Ok(number),
                _ => Err(Rejection::Mismatch),
            });
            let handler = handler.permanent(|_| true);
            let call = Call::new(Identity::new(Scene::Mq, "orders", &number));
            let _ = executor.run(call, handler).await;
        }
        executor
    }

    async fn all(executor: &Executor, filter: &KeyFilter, limits: PageLimits) -> (BTreeSet<String>, usize) {
        let (mut keys, mut pages, mut after) = (BTreeSet::new(), 0, None);
        loop {
            let page = list(executor.store(), filter, after, limits).await.unwrap();
            assert!(page.keys.len() <= limits.keys && page.examined <= limits.examined);
            for (_, record) in page.keys {
                assert!(keys.insert(record.key), "listed twice");
            }
            pages += 1;
            after = page.next;
            if after.is_none() {
                return (keys, pages);
            }
        }
    }

    #[tokio::test]
    async fn pages_contain_each_selected_key_once_within_their_limits() {
        let executor = store().await;
        let states = KeyFilter::of_states;
        for (filter, count) in
            [(states(&[StateKind::Consumed]), 40), (states(&[StateKind::Failed]), 5), (KeyFilter::default(), 5)]
        {
            for limits in
                [PageLimits::default(), PageLimits { keys: 3, examined: 7 }, PageLimits { keys: 1, examined: 1 }]
            {
                let (keys, pages) = all(&executor, &filter, limits).await;
                assert_eq!(keys.len(), count);
                assert!(pages >= 45 / limits.examined.min(45), "{pages} pages");
            }
        }
    }

    #[tokio::test]
    async fn a_paced_listing_examines_no_more_than_its_rate() {
        let executor = store().await;
        let rate = NonZeroU32::new(500);
        let started = tokio::time::Instant::now();
        let page =
            list_paced(executor.store(), &KeyFilter::default(), None, PageLimits::default(), rate).await.unwrap();
        // Five records in each request, and a wait after each but the last.
        assert!(started.elapsed() >= Duration::from_millis(80), "{:?}", started.elapsed());
        assert_eq!((page.examined, page.next), (45, None));
        assert_eq!(time_for(40, rate.unwrap()), Duration::from_millis(80));
    }

    #[tokio::test]
    async fn one_key_is_described_and_an_absent_one_is_none() {
        let executor = store().await;
        let key = |number: u32| Identity::new(Scene::Mq, "orders", &number).key("idempotent").unwrap();
        let seen = inspect(executor.store(), &key(44)).await.unwrap().unwrap();
        assert_eq!((seen.state.kind(), seen.attempt), (StateKind::Failed, 1));
        assert_eq!(inspect(executor.store(), &key(45)).await.unwrap(), None);
    }
}

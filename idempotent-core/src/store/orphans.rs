//! A count of keys that no owner will settle, for a gauge.
use crate::{KeyFilter, PageLimits, StateKind, Store, StoreError};

/// The limits of one page.
const PAGE: PageLimits = PageLimits { keys: 1_000, examined: 10_000 };

/// Counts orphaned keys: consuming keys whose lease ended longer ago than it lasted.
///
/// The owners of such keys crashed, and their messages were not redelivered or wait for too long a retry hint. Use the
/// count as a gauge: the normal value is 0, and a value that stays above 0 needs attention.
///
/// Returns `None` if the store has no [`Search`](crate::Search).
///
/// The function examines all records. Call it every few minutes and from one process only.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use idempotent_core::{MemoryStore, orphans};
///
/// assert_eq!(orphans(&MemoryStore::new()).await?, Some(0));
/// # Ok::<_, idempotent_core::StoreError>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Same as [`Search::search`](crate::Search::search).
///
/// # Cancellation
/// The call only reads, so a drop has no effect.
pub async fn orphans(store: &dyn Store) -> Result<Option<u64>, StoreError> {
    let Some(search) = store.capabilities().search else { return Ok(None) };
    let mut filter = KeyFilter::of_states(&[StateKind::Consuming]);
    filter.orphaned = true;
    let (mut orphans, mut after) = (0, None);
    loop {
        let page = search.search(&filter, after, PAGE).await?;
        orphans += page.entries.len() as u64;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(Some(orphans)),
        }
    }
}

//! A count of keys that no owner will settle, for a gauge.
use crate::{RecordEntry, State, Store, StoreError, Timestamp};

/// The number of entries in one page.
const PAGE: usize = 1_000;

/// Counts orphaned keys: consuming keys that were not renewed, settled or taken over for twice their lease.
///
/// The owners of such keys crashed, and their messages were not redelivered or wait for too long a retry hint. Use the
/// count as a gauge: the normal value is 0, and a value that stays above 0 needs attention.
///
/// Returns `None` if the store cannot [browse](crate::Browse) or does not report its [time](crate::Inspect).
///
/// The function reads all records. Call it every few minutes and from one process only.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use idempotent_core::{MemoryStore, orphans};
///
/// // A memory store cannot list records: they end with the process.
/// assert_eq!(orphans(&MemoryStore::new()).await?, None);
/// # Ok::<_, idempotent_core::StoreError>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Same as [`Browse::browse`](crate::Browse::browse).
///
/// # Cancellation
/// The call only reads, so a drop has no effect.
pub async fn orphans(store: &dyn Store) -> Result<Option<u64>, StoreError> {
    let capabilities = store.capabilities();
    let Some((browse, inspect)) = capabilities.browse.zip(capabilities.inspect) else { return Ok(None) };
    let (mut orphans, mut after) = (0, None);
    loop {
        let page = browse.browse(after, PAGE).await?;
        let mut now = None;
        for RecordEntry { key, record } in &page.entries {
            let State::Consuming { until, .. } = record.state else { continue };
            // One reading of the store's time is enough for a page, if it is taken after the page was read.
            let at = match now {
                Some(at) => at,
                None => match inspect.inspect(key).await? {
                    Some(seen) => *now.insert(seen.now),
                    // The record has been removed since the page was read.
                    None => continue,
                },
            };
            orphans += u64::from(is_orphan(until, record.updated_at, at));
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(Some(orphans)),
        }
    }
}

fn is_orphan(until: Timestamp, renewed: Timestamp, now: Timestamp) -> bool {
    now >= until + (until - renewed)
}

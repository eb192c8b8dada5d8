//! What nobody will settle by itself, for a gauge.
use crate::{Entry, Micros, State, Store, StoreError};

/// Entries of one page.
const PAGE: usize = 1_000;

/// How many keys are held by nobody any more: consuming, and since twice their lease neither renewed, settled nor taken
/// over. Their owners died, and their messages did not come again, or wait for a hint that was too long. A gauge: 0 is
/// good, and one that stays above it is to be looked into.
///
/// `None` if the store cannot [browse](crate::Browse) or does not tell its [time](crate::Inspect).
///
/// It walks through all records, so ask once in some minutes, and not in each process.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use idempotent_core::{MemoryStore, orphans};
///
/// // The memory of one process dies with it: there is nothing to list.
/// assert_eq!(orphans(&MemoryStore::new()).await?, None);
/// # Ok::<_, idempotent_core::StoreError>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`Browse::browse`](crate::Browse::browse).
///
/// # Cancellation
/// Reads only: nothing is left behind.
pub async fn orphans(store: &dyn Store) -> Result<Option<u64>, StoreError> {
    let abilities = store.abilities();
    let Some((browse, inspect)) = abilities.browse.zip(abilities.inspect) else { return Ok(None) };
    let (mut orphans, mut after) = (0, None);
    loop {
        let page = browse.browse(after, PAGE).await?;
        let mut now = None;
        for Entry { key, record } in &page.entries {
            let State::Consuming { until, .. } = record.state else { continue };
            // One look at the store's time is enough for a page, if it is one behind the reading of it.
            let at = match now {
                Some(at) => at,
                None => match inspect.inspect(key).await? {
                    Some(seen) => *now.insert(seen.now),
                    // Gone meanwhile.
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

fn is_orphan(until: Micros, renewed: Micros, now: Micros) -> bool {
    now >= until + (until - renewed)
}

//! A fresh start on a shared server: only the data of this example is deleted.
use std::time::Duration;

use anyhow::anyhow;
use futures_util::future::try_join_all;
use idempotent::Executor;

use crate::held::records;

/// The number of concurrent calls, which the store batches.
const TOGETHER: usize = 256;
/// The time for which the store remembers that a key was forgotten.
const MEMORY: Duration = Duration::from_secs(60);

/// Makes every key of this example claimable again, also those that are in flight.
pub(crate) async fn forget(executor: &Executor) -> anyhow::Result<()> {
    let Some(admin) = executor.store().capabilities().admin else {
        return Err(anyhow!("--fresh cannot forget keys: this store does not let them be forgotten"));
    };
    let known = records(executor).await.map_err(|error| anyhow!("--fresh cannot list the keys: {error}"))?;
    for some in known.chunks(TOGETHER) {
        let forgotten = some.iter().map(|entry| admin.forget(&entry.key, entry.record.fencing, true, MEMORY));
        try_join_all(forgotten).await.map_err(|error| anyhow!("--fresh cannot forget a key: {error}"))?;
    }
    Ok(())
}

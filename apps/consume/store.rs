//! The store that `idempotent::connect` opens, and a fresh start on a shared server. For this demonstration, a missing table on a
//! server is created.
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use futures_util::future::try_join_all;
use idempotent::{ConnectError, Executor, Store};

use crate::held::records;

pub(crate) async fn open(url: &str) -> anyhow::Result<Arc<dyn Store>> {
    #[cfg(feature = "servers")]
    match url.split("://").next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "postgres" | "postgresql" => {
            return Ok(Arc::new(idempotent::PostgresStore::builder(url).create(true).connect().await?));
        }
        "mysql" | "mariadb" => {
            return Ok(Arc::new(idempotent::MySqlStore::builder(url).create(true).connect().await?));
        }
        _ => {}
    }
    idempotent::connect(url).await.map_err(|error| match error {
        ConnectError::FeatureOff { scheme, .. } => anyhow!(
            "--store: this build has no client for {scheme}://; run `cargo run --features servers --bin consume`"
        ),
        error => error.into(),
    })
}

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

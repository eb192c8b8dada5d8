//! The store that `idempotent::connect` opens. For this demonstration, a missing table on a server is created.
use std::sync::Arc;

use anyhow::anyhow;
use idempotent::{ConnectError, Store};

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

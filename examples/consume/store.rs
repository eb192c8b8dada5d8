//! The store: what `idempotent::connect` opens. This is a demonstration: where a server has no table for records, one is made.
use std::sync::Arc;

use idempotent::{ConnectError, MySqlStore, PostgresStore, Store};

pub(crate) async fn open(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    let scheme = url.split("://").next().unwrap_or_default().to_ascii_lowercase();
    Ok(match scheme.as_str() {
        "postgres" | "postgresql" => Arc::new(PostgresStore::builder(url).create(true).open().await?),
        "mysql" | "mariadb" => Arc::new(MySqlStore::builder(url).create(true).open().await?),
        _ => idempotent::connect(url).await?,
    })
}

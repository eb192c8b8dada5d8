//! A file that somebody else has locked.
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

/// For so long nobody writes into it: a call waits, and fails where that is longer than it may wait.
pub(super) fn lock(file: &Path, long: Duration) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let options = SqliteConnectOptions::new().filename(file).busy_timeout(Duration::from_secs(60));
        let mut connection = options.connect().await.context("the store's file cannot be opened")?;
        let transaction =
            connection.begin_with("BEGIN IMMEDIATE").await.context("the store's file cannot be locked")?;
        tokio::time::sleep(long).await;
        transaction.rollback().await?;
        Ok(connection.close().await?)
    })
}

//! From a URL to a store: the one line that changes between a laptop and production.
mod error;
mod url;

use std::sync::Arc;

use idempotent_core::{MemoryStore, Store};

pub use self::error::ConnectError;
use self::url::{Scheme, Url};

/// Opens the store that `url` names.
///
/// | URL | store | feature |
/// |---|---|---|
/// | `memory:` | [`MemoryStore`], ends with the process | |
/// | `sqlite:PATH`, `sqlite://PATH` | an SQLite file, made if it is missing | `sqlite` |
/// | `sqlite::memory:` | SQLite without a file | `sqlite` |
///
/// `redis://`, `rediss://`, `redis+sentinel://`, `redis+cluster://`, `postgres://` and `mysql://` are known by name;
/// this version does not have their stores yet.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let executor = idempotent::Executor::new(idempotent::connect("memory:").await?);
/// assert_eq!(executor.namespace(), "idempotent");
///
/// let error = idempotent::connect("redis//:secret@cache").await.unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "invalid store url `redis//:***@cache`: a colon is missing after `redis`, it is `redis://…`",
/// );
/// # Ok::<_, idempotent::ConnectError>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ConnectError`], with the remedy in its text: the URL is empty, has no scheme, one that is not known, not built
/// in or not to be had yet, or names a port there cannot be; or the store itself cannot be opened. No text shows a
/// password.
///
/// # Cancellation
/// Dropping it leaves what is stored as it was; an SQLite file may have been made.
pub async fn connect(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    let url = Url::parse(url)?;
    match url.scheme {
        Scheme::Memory => match url.rest.trim_start_matches('/') {
            "" => Ok(Arc::new(MemoryStore::new())),
            _ => Err(url.invalid("nothing may follow `memory:`, it has no name and no settings")),
        },
        Scheme::Sqlite => sqlite(url.rest).await,
        Scheme::Later { name, feature } => {
            url.check_ports()?;
            Err(ConnectError::NotYet { scheme: name, feature })
        }
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(rest: &str) -> Result<Arc<dyn Store>, ConnectError> {
    Ok(Arc::new(idempotent_sqlx::SqliteStore::open(format!("sqlite:{rest}")).await?))
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_: &str) -> Result<Arc<dyn Store>, ConnectError> {
    Err(ConnectError::FeatureOff { scheme: "sqlite", feature: "sqlite" })
}

#[cfg(test)]
mod tests;

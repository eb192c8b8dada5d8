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
/// | `redis://[USER:PASSWORD@]HOST[:PORT][/DB]` | Redis or Valkey, one server | `redis` |
/// | `redis+unix:///PATH[?db=N]` | the same, by its socket file | `redis` |
/// | `redis+sentinel://HOST[:PORT],HOST…/PRIMARY[/DB]` | the primary that these sentinels name | `redis` |
/// | `redis+cluster://HOST[:PORT],HOST…` | a cluster | `redis` |
/// | `postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE` | PostgreSQL; the table has to be there: `PostgresStore::builder(…).create(true)` makes it | `postgres` |
/// | `mysql://[USER:PASSWORD@]HOST[:PORT]/DATABASE`, `mariadb://…` | MariaDB or MySQL; the table has to be there: `MySqlStore::builder(…).create(true)` makes it | `mysql` |
/// | `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…` | the same by TLS | `redis-tls` |
/// | `postgres://…?sslmode=verify-full&sslrootcert=FILE` | PostgreSQL by TLS; without an authority's file those that the system trusts | `postgres-tls` |
/// | `mysql://…?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE` | MariaDB or MySQL by TLS | `mysql-tls` |
///
/// Characters such as `@` in a password are percent-encoded: `%40`.
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
/// [`ConnectError`], with the remedy in its text: the URL is empty, has no scheme, one that is not known or not built
/// in, or names a port there cannot be; or the store itself cannot be opened. No text shows a
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
        Scheme::Redis { name, tls } => redis(&url, name, tls).await,
        Scheme::Postgres => postgres(&url).await,
        Scheme::MySql => mysql(&url).await,
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

#[cfg(feature = "mysql")]
async fn mysql(url: &Url<'_>) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    Ok(Arc::new(idempotent_sqlx::MySqlStore::open(url.text).await?))
}

#[cfg(not(feature = "mysql"))]
async fn mysql(url: &Url<'_>) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    Err(ConnectError::FeatureOff { scheme: "mysql", feature: "mysql" })
}

#[cfg(feature = "postgres")]
async fn postgres(url: &Url<'_>) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    Ok(Arc::new(idempotent_sqlx::PostgresStore::open(url.text).await?))
}

#[cfg(not(feature = "postgres"))]
async fn postgres(url: &Url<'_>) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    Err(ConnectError::FeatureOff { scheme: "postgres", feature: "postgres" })
}

#[cfg(feature = "redis")]
async fn redis(url: &Url<'_>, scheme: &'static str, tls: bool) -> Result<Arc<dyn Store>, ConnectError> {
    if let Some(part) = idempotent_redis::__wrong_part(url.text) {
        return Err(url.invalid(&part));
    }
    if tls && !cfg!(feature = "redis-tls") {
        return Err(ConnectError::FeatureOff { scheme, feature: "redis-tls" });
    }
    Ok(Arc::new(idempotent_redis::RedisStore::connect(url.text).await?))
}

#[cfg(not(feature = "redis"))]
async fn redis(url: &Url<'_>, scheme: &'static str, tls: bool) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    Err(ConnectError::FeatureOff { scheme, feature: if tls { "redis-tls" } else { "redis" } })
}

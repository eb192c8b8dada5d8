//! Opening a store by its URL.
mod error;
mod open;
mod url;

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;

use idempotent_core::__private::url::masked;
use idempotent_core::Store;

pub use self::error::ConnectError;

/// Opens the store that `url` names. Settings go before `.await`: `connect(url).create(true).await`.
///
/// | URL | store | feature |
/// |---|---|---|
/// | `memory:` | [`MemoryStore`](crate::MemoryStore), ends with the process | |
/// | `sqlite:PATH`, `sqlite://PATH` | an SQLite file, created if it is missing | `sqlite` |
/// | `sqlite::memory:` | SQLite without a file | `sqlite` |
/// | `redis://[USER:PASSWORD@]HOST[:PORT][/DB]` | Redis or Valkey, one server | `redis` |
/// | `redis+unix:///PATH[?db=N]` | the same, by its socket file | `redis` |
/// | `redis+sentinel://HOST[:PORT],HOST…/PRIMARY[/DB]` | the primary that these sentinels name | `redis` |
/// | `redis+cluster://HOST[:PORT],HOST…` | a cluster | `redis` |
/// | `postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE` | PostgreSQL; [`create`](Connect::create) creates missing tables | `postgres` |
/// | `mysql://[USER:PASSWORD@]HOST[:PORT]/DATABASE`, `mariadb://…` | MariaDB or MySQL; [`create`](Connect::create) creates missing tables | `mysql`, for MySQL 8 and later `mysql-tls` |
/// | `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…` | the same by TLS | `redis-tls` |
/// | `postgres://…?sslmode=verify-full&sslrootcert=FILE` | PostgreSQL by TLS; without a file, the system's authorities are trusted | `postgres-tls` |
/// | `mysql://…?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE` | MariaDB or MySQL by TLS | `mysql-tls` |
/// | <code>tiered:DATABASE_URL&#124;CACHE_URL</code> | a [`TieredStore`](crate::TieredStore): a database, with Redis or `memory:` as its cache | those of both URLs |
///
/// Characters such as `@` and `|` in a password are percent-encoded: `%40`, `%7C`.
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
/// Returns a [`ConnectError`] with the remedy in its text. The URL is empty, has no scheme, has a scheme that is unknown
/// or not built in, or contains an invalid port; or the store cannot be opened. No text contains a password.
///
/// # Cancellation
/// Stored records do not change. A file or tables may have been created.
pub fn connect(url: impl Into<String>) -> Connect {
    let url = url.into();
    Connect {
        url,
        cache: None,
        create: None,
        read_only: false,
        namespace: None,
        table: None,
        schema: None,
        partitions: None,
    }
}

/// A request to open a store, made by [`connect`]. Awaiting the request opens the store.
#[derive(Clone)]
#[must_use = "await the request to open the store"]
pub struct Connect {
    url: String,
    cache: Option<String>,
    create: Option<bool>,
    read_only: bool,
    namespace: Option<String>,
    table: Option<String>,
    schema: Option<String>,
    partitions: Option<u16>,
}

impl Connect {
    /// Sets whether the database's missing tables, or a missing SQLite file, are created. Redis needs no creation.
    ///
    /// If an administrator creates the tables, `schema_steps` of the store's builder returns the SQL text.
    ///
    /// # Default
    /// false for PostgreSQL, MariaDB and MySQL, where a missing table is an error that names this setting; true for SQLite
    pub fn create(mut self, create: bool) -> Self {
        self.create = Some(create);
        self
    }

    /// Opens the store for reading only, for tools: every operation that would write is refused, and opening creates nothing.
    ///
    /// # Default
    /// false
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets the namespace of the executor. Redis checks its version and the access to its keys; databases do not need it.
    ///
    /// # Default
    /// `idempotent`, like the default of [`ExecutorBuilder::namespace`](crate::ExecutorBuilder::namespace)
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the name of the database's record table. A name consists of at most 63 of the characters a-z, 0-9 and `_`, does
    /// not start with a digit, and is checked before the database is asked. Redis and the memory store have no tables.
    ///
    /// # Default
    /// `idempotent_record`
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = Some(name.into());
        self
    }

    /// Sets the schema of the record table, for PostgreSQL, MariaDB and MySQL. The rules for the name of a table apply.
    ///
    /// # Default
    /// The first schema in the connection's `search_path` for PostgreSQL, the database of the URL for MariaDB and MySQL
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = Some(name.into());
        self
    }

    /// Sets the number of hash partitions of new tables in PostgreSQL, from 2 to 128. An existing table with another number is refused.
    /// The guide on sizing has the reasons for partitions ([`docs::sizing`](crate::docs::sizing)).
    ///
    /// # Default
    /// No partitions, and an existing table may have any number
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// Puts a cache in front of the database: the URL of Redis, or `memory:` for the memory of this process. The store is a
    /// [`TieredStore`](crate::TieredStore) with its default settings.
    ///
    /// The database decides, so the loss of the cache costs speed only. The URL `tiered:DATABASE_URL|CACHE_URL` means the
    /// same.
    ///
    /// # Default
    /// No cache
    pub fn cache(mut self, url: impl Into<String>) -> Self {
        self.cache = Some(url.into());
        self
    }
}

impl IntoFuture for Connect {
    type Output = Result<Arc<dyn Store>, ConnectError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { open::open(&self).await })
    }
}

impl Connect {
    /// Returns the URLs without passwords.
    fn masked(&self) -> Vec<Box<str>> {
        self.url.split('|').chain(self.cache.as_deref()).map(masked).collect()
    }
}

/// Prints the URLs without passwords.
impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked().join("|"))
    }
}

/// Prints the URLs without passwords.
impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("urls", &self.masked())
            .field("create", &self.create)
            .field("read_only", &self.read_only)
            .finish()
    }
}

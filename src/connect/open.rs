//! Opening of the store of each scheme.
use std::sync::Arc;

use idempotent_core::{MemoryStore, MemoryTier, Store, TieredStore};

use super::url::{Scheme, Url};
use super::{Connect, ConnectError};

/// Opens the store of a URL. `create` overrides the store's default.
pub(super) async fn open(connect: &Connect) -> Result<Arc<dyn Store>, ConnectError> {
    let url = Url::parse(&connect.url)?;
    let (durable, cache) = match (url.tiers()?, &connect.cache) {
        (Some((durable, cache)), None) => (durable, Some(cache)),
        (Some(_), Some(_)) => return Err(url.invalid("a `tiered:` URL names its cache: leave `cache` out")),
        (None, Some(cache)) => (url, Some(Url::parse(cache)?)),
        (None, None) => (url, None),
    };
    let Some(cache) = cache else { return one(&durable, connect).await };
    if matches!(durable.scheme, Scheme::Memory | Scheme::Redis { .. }) {
        return Err(durable.invalid(
            "the durable tier is a database, because a cache in front of memory or Redis saves nothing: use `sqlite:PATH`, \
             `postgres://…` or `mysql://…`",
        ));
    }
    match cache.scheme {
        Scheme::Memory => {
            cache.check_memory()?;
            Ok(Arc::new(TieredStore::new(one(&durable, connect).await?, MemoryTier::new())))
        }
        Scheme::Redis { name, tls } => redis_tier(&cache, name, tls, &durable, connect).await,
        Scheme::Sqlite | Scheme::Postgres | Scheme::MySql | Scheme::Tiered => Err(cache.invalid(
            "the cache is Redis or the memory of this process: use `redis://…` or `memory:`; the first URL is the database",
        )),
    }
}

/// Opens a store without a cache.
async fn one(url: &Url<'_>, connect: &Connect) -> Result<Arc<dyn Store>, ConnectError> {
    let is_named = connect.table.is_some() || connect.schema.is_some();
    match url.scheme {
        Scheme::Memory | Scheme::Redis { .. } if is_named => {
            Err(url.invalid("only databases have tables and schemas: leave `table` and `schema` out"))
        }
        Scheme::Memory | Scheme::Redis { .. } | Scheme::Sqlite | Scheme::MySql if connect.partitions.is_some() => {
            Err(url.invalid("only tables in PostgreSQL have partitions: leave `partitions` out"))
        }
        Scheme::Sqlite if connect.schema.is_some() => {
            Err(url.invalid("SQLite has no schemas: leave `schema` out, and name the table by `table`"))
        }
        Scheme::Memory => {
            url.check_memory()?;
            Ok(Arc::new(MemoryStore::new()))
        }
        Scheme::Sqlite => sqlite(url.rest, connect).await,
        Scheme::Redis { name, tls } => redis(url, name, tls, connect).await,
        Scheme::Postgres => postgres(url, connect).await,
        Scheme::MySql => mysql(url, connect).await,
        Scheme::Tiered => Err(url.invalid("a tier has no tiers of its own")),
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(rest: &str, connect: &Connect) -> Result<Arc<dyn Store>, ConnectError> {
    let mut builder = idempotent_sqlx::SqliteStore::builder(format!("sqlite:{rest}"));
    if let Some(table) = &connect.table {
        builder = builder.table(table.as_str());
    }
    Ok(Arc::new(
        builder.create(connect.create.unwrap_or(!connect.read_only)).read_only(connect.read_only).open().await?,
    ))
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_: &str, _: &Connect) -> Result<Arc<dyn Store>, ConnectError> {
    Err(ConnectError::FeatureOff { scheme: "sqlite", feature: "sqlite" })
}

#[cfg(feature = "mysql")]
async fn mysql(url: &Url<'_>, connect: &Connect) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    let mut builder = idempotent_sqlx::MySqlStore::builder(url.text);
    if let Some(table) = &connect.table {
        builder = builder.table(table.as_str());
    }
    if let Some(schema) = &connect.schema {
        builder = builder.schema(schema.as_str());
    }
    Ok(Arc::new(builder.create(connect.create.unwrap_or(false)).read_only(connect.read_only).connect().await?))
}

#[cfg(not(feature = "mysql"))]
async fn mysql(url: &Url<'_>, _: &Connect) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    Err(ConnectError::FeatureOff { scheme: "mysql", feature: "mysql" })
}

#[cfg(feature = "postgres")]
async fn postgres(url: &Url<'_>, connect: &Connect) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    let mut builder = idempotent_sqlx::PostgresStore::builder(url.text);
    if let Some(table) = &connect.table {
        builder = builder.table(table.as_str());
    }
    if let Some(schema) = &connect.schema {
        builder = builder.schema(schema.as_str());
    }
    if let Some(partitions) = connect.partitions {
        builder = builder.partitions(partitions);
    }
    Ok(Arc::new(builder.create(connect.create.unwrap_or(false)).read_only(connect.read_only).connect().await?))
}

#[cfg(not(feature = "postgres"))]
async fn postgres(url: &Url<'_>, _: &Connect) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    Err(ConnectError::FeatureOff { scheme: "postgres", feature: "postgres" })
}

#[cfg(feature = "redis")]
async fn redis(
    url: &Url<'_>,
    scheme: &'static str,
    tls: bool,
    connect: &Connect,
) -> Result<Arc<dyn Store>, ConnectError> {
    Ok(Arc::new(redis_store(url, scheme, tls, connect).await?))
}

#[cfg(not(feature = "redis"))]
async fn redis(url: &Url<'_>, scheme: &'static str, tls: bool, _: &Connect) -> Result<Arc<dyn Store>, ConnectError> {
    Err(redis_is_off(url, scheme, tls))
}

#[cfg(feature = "redis")]
async fn redis_tier(
    cache: &Url<'_>,
    scheme: &'static str,
    tls: bool,
    durable: &Url<'_>,
    connect: &Connect,
) -> Result<Arc<dyn Store>, ConnectError> {
    let cache = redis_store(cache, scheme, tls, connect).await?;
    Ok(Arc::new(TieredStore::new(one(durable, connect).await?, cache.fast_tier())))
}

#[cfg(not(feature = "redis"))]
async fn redis_tier(
    cache: &Url<'_>,
    scheme: &'static str,
    tls: bool,
    _: &Url<'_>,
    _: &Connect,
) -> Result<Arc<dyn Store>, ConnectError> {
    Err(redis_is_off(cache, scheme, tls))
}

#[cfg(feature = "redis")]
async fn redis_store(
    url: &Url<'_>,
    scheme: &'static str,
    tls: bool,
    connect: &Connect,
) -> Result<idempotent_redis::RedisStore, ConnectError> {
    idempotent_redis::RedisStore::check_url(url.text).map_err(|part| url.invalid(&part.to_string()))?;
    if tls && !cfg!(feature = "redis-tls") {
        return Err(ConnectError::FeatureOff { scheme, feature: "redis-tls" });
    }
    let mut builder = idempotent_redis::RedisStore::builder(url.text).read_only(connect.read_only);
    if let Some(namespace) = &connect.namespace {
        builder = builder.namespace(namespace.as_str());
    }
    Ok(builder.connect().await?)
}

#[cfg(not(feature = "redis"))]
fn redis_is_off(url: &Url<'_>, scheme: &'static str, tls: bool) -> ConnectError {
    let feature = if tls { "redis-tls" } else { "redis" };
    url.check_ports().err().unwrap_or(ConnectError::FeatureOff { scheme, feature })
}

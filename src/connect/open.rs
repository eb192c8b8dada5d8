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
    let Some(cache) = cache else { return one(&durable, connect.create).await };
    if matches!(durable.scheme, Scheme::Memory | Scheme::Redis { .. }) {
        return Err(durable.invalid(
            "the durable tier is a database, because a cache in front of memory or Redis saves nothing: use `sqlite:PATH`, \
             `postgres://…` or `mysql://…`",
        ));
    }
    match cache.scheme {
        Scheme::Memory => {
            cache.check_memory()?;
            Ok(Arc::new(TieredStore::new(one(&durable, connect.create).await?, MemoryTier::new())))
        }
        Scheme::Redis { name, tls } => redis_tier(&cache, name, tls, &durable, connect.create).await,
        Scheme::Sqlite | Scheme::Postgres | Scheme::MySql | Scheme::Tiered => Err(cache.invalid(
            "the cache is Redis or the memory of this process: use `redis://…` or `memory:`; the first URL is the database",
        )),
    }
}

/// Opens a store without a cache.
async fn one(url: &Url<'_>, create: Option<bool>) -> Result<Arc<dyn Store>, ConnectError> {
    match url.scheme {
        Scheme::Memory => {
            url.check_memory()?;
            Ok(Arc::new(MemoryStore::new()))
        }
        Scheme::Sqlite => sqlite(url.rest, create).await,
        Scheme::Redis { name, tls } => redis(url, name, tls).await,
        Scheme::Postgres => postgres(url, create).await,
        Scheme::MySql => mysql(url, create).await,
        Scheme::Tiered => Err(url.invalid("a tier has no tiers of its own")),
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(rest: &str, create: Option<bool>) -> Result<Arc<dyn Store>, ConnectError> {
    let builder = idempotent_sqlx::SqliteStore::builder(format!("sqlite:{rest}"));
    Ok(Arc::new(builder.create(create.unwrap_or(true)).open().await?))
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_: &str, _: Option<bool>) -> Result<Arc<dyn Store>, ConnectError> {
    Err(ConnectError::FeatureOff { scheme: "sqlite", feature: "sqlite" })
}

#[cfg(feature = "mysql")]
async fn mysql(url: &Url<'_>, create: Option<bool>) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    let builder = idempotent_sqlx::MySqlStore::builder(url.text);
    Ok(Arc::new(builder.create(create.unwrap_or(false)).connect().await?))
}

#[cfg(not(feature = "mysql"))]
async fn mysql(url: &Url<'_>, _: Option<bool>) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    Err(ConnectError::FeatureOff { scheme: "mysql", feature: "mysql" })
}

#[cfg(feature = "postgres")]
async fn postgres(url: &Url<'_>, create: Option<bool>) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    let builder = idempotent_sqlx::PostgresStore::builder(url.text);
    Ok(Arc::new(builder.create(create.unwrap_or(false)).connect().await?))
}

#[cfg(not(feature = "postgres"))]
async fn postgres(url: &Url<'_>, _: Option<bool>) -> Result<Arc<dyn Store>, ConnectError> {
    url.check_ports()?;
    Err(ConnectError::FeatureOff { scheme: "postgres", feature: "postgres" })
}

#[cfg(feature = "redis")]
async fn redis(url: &Url<'_>, scheme: &'static str, tls: bool) -> Result<Arc<dyn Store>, ConnectError> {
    Ok(Arc::new(redis_store(url, scheme, tls).await?))
}

#[cfg(not(feature = "redis"))]
async fn redis(url: &Url<'_>, scheme: &'static str, tls: bool) -> Result<Arc<dyn Store>, ConnectError> {
    Err(redis_is_off(url, scheme, tls))
}

#[cfg(feature = "redis")]
async fn redis_tier(
    cache: &Url<'_>,
    scheme: &'static str,
    tls: bool,
    durable: &Url<'_>,
    create: Option<bool>,
) -> Result<Arc<dyn Store>, ConnectError> {
    let cache = redis_store(cache, scheme, tls).await?;
    Ok(Arc::new(TieredStore::new(one(durable, create).await?, cache.fast_tier())))
}

#[cfg(not(feature = "redis"))]
async fn redis_tier(
    cache: &Url<'_>,
    scheme: &'static str,
    tls: bool,
    _: &Url<'_>,
    _: Option<bool>,
) -> Result<Arc<dyn Store>, ConnectError> {
    Err(redis_is_off(cache, scheme, tls))
}

#[cfg(feature = "redis")]
async fn redis_store(
    url: &Url<'_>,
    scheme: &'static str,
    tls: bool,
) -> Result<idempotent_redis::RedisStore, ConnectError> {
    idempotent_redis::RedisStore::check_url(url.text).map_err(|part| url.invalid(&part.to_string()))?;
    if tls && !cfg!(feature = "redis-tls") {
        return Err(ConnectError::FeatureOff { scheme, feature: "redis-tls" });
    }
    Ok(idempotent_redis::RedisStore::connect(url.text).await?)
}

#[cfg(not(feature = "redis"))]
fn redis_is_off(url: &Url<'_>, scheme: &'static str, tls: bool) -> ConnectError {
    let feature = if tls { "redis-tls" } else { "redis" };
    url.check_ports().err().unwrap_or(ConnectError::FeatureOff { scheme, feature })
}

//! The stores the records are kept in.
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore};
use idempotent_redis::RedisStore;
use idempotent_sqlx::SqliteStore;
use idempotent_testkit::servers::RedisServer;
use tempfile::TempDir;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
    Redis,
}

/// Where records outlive an executor.
pub(crate) enum Backing {
    Memory(MemoryStore),
    Sqlite(TempDir),
    Redis(RedisServer),
}

impl Backing {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Memory => Self::Memory(MemoryStore::new()),
            Kind::Sqlite => Self::Sqlite(tempfile::tempdir().unwrap()),
            Kind::Redis => Self::Redis(RedisServer::start()),
        }
    }

    /// What another process opens it by.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory(_) => panic!("of one process only"),
            Self::Sqlite(folder) => folder.path().join("store.db").to_str().unwrap().to_owned(),
            Self::Redis(server) => server.url(),
        }
    }

    pub(crate) async fn executor(&self) -> Executor {
        match self {
            Self::Memory(store) => Executor::new(store.clone()),
            Self::Sqlite(_) | Self::Redis(_) => open(&self.url()).await,
        }
    }
}

/// Of a Redis by its URL, or a file by its path. A Redis on a busy machine may stand still for seconds.
pub(crate) async fn open(place: &str) -> Executor {
    if place.starts_with("redis://") {
        redis(place, Duration::from_secs(30)).await
    } else {
        Executor::new(SqliteStore::open(place).await.unwrap())
    }
}

/// One that gives up on an answer after this long.
pub(crate) async fn redis(url: &str, response_timeout: Duration) -> Executor {
    Executor::new(RedisStore::builder(url).response_timeout(response_timeout).connect().await.unwrap())
}

//! The stores of the servers.
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use idempotent_sqlx::SqliteStore;
use tempfile::TempDir;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
    Redis,
}

/// A store whose records outlive an executor.
pub(crate) enum Backing {
    Memory(MemoryStore),
    Sqlite(TempDir),
    Redis(Box<RedisServer>),
}

impl Backing {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Memory => Self::Memory(MemoryStore::new()),
            Kind::Sqlite => Self::Sqlite(tempfile::tempdir().unwrap()),
            Kind::Redis => Self::Redis(Box::new(RedisServer::start())),
        }
    }

    /// The address by which another process opens the store.
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

/// Opens a Redis by its URL, or a file by its path. On a loaded machine Redis may pause for seconds.
pub(crate) async fn open(place: &str) -> Executor {
    if place.starts_with("redis://") {
        redis(place, Duration::from_secs(30)).await
    } else {
        Executor::new(SqliteStore::open(place).await.unwrap())
    }
}

/// Opens a store with this response timeout.
pub(crate) async fn redis(url: &str, response_timeout: Duration) -> Executor {
    Executor::new(RedisStore::builder(url).response_timeout(response_timeout).connect().await.unwrap())
}

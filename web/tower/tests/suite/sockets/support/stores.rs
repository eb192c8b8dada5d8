//! The stores of the servers.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Executor, Key, MemoryStore, Record, Release, Settled, Store,
    StoreCapabilities, StoreError,
};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use idempotent_sqlx::SqliteStore;
use tempfile::TempDir;
use tokio::sync::Semaphore;

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

/// A store that replies to claims only when the test permits it.
#[derive(Debug)]
pub(crate) struct SlowClaims {
    pub(crate) inner: MemoryStore,
    /// Claims without a reply.
    pub(crate) made: Arc<Semaphore>,
    pub(crate) may: Arc<Semaphore>,
}

#[async_trait]
impl Store for SlowClaims {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let claim = self.inner.claim(request).await;
        self.made.add_permits(1);
        self.may.acquire().await.unwrap().forget();
        claim
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.inner.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.inner.complete(held, completion).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.inner.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

//! Sentinel groups and clusters. Starting them takes too long for each law, so a law takes an idle group from a pool.
use std::sync::{Arc, Mutex, PoisonError};

use idempotent_core::Key;
use idempotent_harness::servers::{RedisCluster, RedisSentinels, RedisServer};
use idempotent_redis::RedisStore;
use idempotent_testkit::Subject;

use crate::conformance::damaged_values::{Behind, Values};

/// Groups that no law uses. They stop with this process.
pub(crate) struct Pool<T: 'static>(Mutex<Vec<Arc<T>>>);

/// A group of servers that the laws use one after the other.
pub(crate) trait Group: Behind + Send + Sync + Sized + 'static {
    fn start() -> Self;
    fn pool() -> &'static Pool<Self>;
    fn url(&self) -> String;
    /// Removes the keys of the last law.
    fn empty(&self);
}

struct Taken<T: Group>(Arc<T>);

impl<T: Group> Drop for Taken<T> {
    fn drop(&mut self) {
        T::pool().0.lock().unwrap_or_else(PoisonError::into_inner).push(self.0.clone());
    }
}

pub(crate) async fn subject<T: Group>() -> Subject {
    let free = T::pool().0.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let group = Taken(free.unwrap_or_else(|| Arc::new(T::start())));
    group.0.empty();
    let url = group.0.url();
    let open = async || RedisStore::connect(&url).await.unwrap();
    let (store, second) = (open().await, open().await);
    Subject::new(store).second(second).planting(Values(group.0.clone())).rounds(20).guarded_by(group)
}

static SENTINELS: Pool<RedisSentinels> = Pool(Mutex::new(Vec::new()));
static CLUSTERS: Pool<RedisCluster> = Pool(Mutex::new(Vec::new()));

impl Group for RedisSentinels {
    fn start() -> Self {
        Self::start()
    }

    fn pool() -> &'static Pool<Self> {
        &SENTINELS
    }

    fn url(&self) -> String {
        self.url()
    }

    fn empty(&self) {
        self.current_primary().command(&["FLUSHALL"]);
    }
}

impl Group for RedisCluster {
    fn start() -> Self {
        Self::start(3)
    }

    fn pool() -> &'static Pool<Self> {
        &CLUSTERS
    }

    fn url(&self) -> String {
        self.url()
    }

    fn empty(&self) {
        self.nodes().iter().for_each(|node| drop(node.command(&["FLUSHALL"])));
    }
}

impl Behind for RedisSentinels {
    fn of(&self, _: &Key) -> &RedisServer {
        self.current_primary()
    }
}

impl Behind for RedisCluster {
    fn of(&self, key: &Key) -> &RedisServer {
        self.node(self.owner_of(self.slot_of(key.as_str())))
    }
}

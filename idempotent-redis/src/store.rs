//! [`RedisStore`] and its implementation of the core's [`Store`] trait.
mod batch;
pub(crate) mod builder;
mod calls;
mod completion;
mod journal;
mod listing;
pub(crate) mod memory;
mod order_tables;
mod replication;
mod replies;
mod search;
pub(crate) mod tier;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write, live};
use idempotent_core::{
    Admin, Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Inspect, InspectedRecord, Key, Record, Release,
    Renewal, Settled, Store, StoreCapabilities, StoreError, StoreNode, StoreNodes,
};

#[cfg(doc)]
use crate::CacheOptions;
use crate::batching::call::ScriptCall;
use crate::connection::notifications::NotificationHub;
use crate::connection::url::{self as connection_url, InvalidUrl};
use crate::durability::{Counters, Durability, RedisCounts};
use crate::startup::StartupChecks;
use crate::store::builder::RedisStoreBuilder;
use crate::topology::Topology;
use crate::topology::cluster::ClusterRouter;

/// A store that keeps records in Redis 6.2 or later, or in Valkey.
///
/// The store connects to one server, to the primary that sentinels report, or to a cluster. A clone is cheap and shares
/// the connections of the original.
///
/// Each protocol step is one script or one conditional command on one key, and uses the server's clock. Concurrent calls are batched: a single call
/// is sent at once, and calls that arrive in the meantime are sent together, up to 256 keys per script call. In a
/// cluster, calls for the same node share a pipeline. While 4,096 calls wait for a server, further claims of single runs fail as
/// [`Busy`](idempotent_core::StoreErrorKind::Busy). A key that this process knows to be consumed costs no command;
/// see [`CacheOptions`].
///
/// | URL | server |
/// |---|---|
/// | `redis://[user:password@]host[:port][/db]` | one server |
/// | `redis+unix:///path[?db=N]` | one server, through a Unix socket |
/// | `redis+sentinel://[user:password@]host[:port],…/primary[/db]` | the primary with this name, found through sentinels |
/// | `redis+cluster://[user:password@]host[:port],…` | a cluster, found through some of its nodes |
/// | `rediss…` instead of `redis…` | the same over TLS (feature `tls`; `redis-tls` in the facade) |
///
/// A connection belongs to the Tokio runtime that opened it. Do not share a store with a runtime that is neither
/// running nor dropped.
///
/// The store supports the capabilities batch, watch, search, purge, admin, inspect, journal and order, and in a cluster nodes.
/// Records expire by themselves. A purge removes only records that were retained for their fencing number.
///
/// A listing covers this namespace, and other namespaces as far as the user's permissions allow. Listings use `SCAN`: a
/// key that exists throughout the listing is listed, and it is listed twice only if the server resizes its table in the
/// meantime. A key that moves to another cluster node during the listing may be missing or listed twice.
///
/// # Data loss
/// Redis replicates asynchronously. If a primary dies, writes that it acknowledged but had not replicated are lost, and
/// their keys are granted again. [`Durability`] makes this loss rare. A server without an append-only file or snapshots
/// starts empty. If the record of a deleted key is gone, the next fencing number comes from the server's clock, so
/// setting the clock back lowers the number.
///
/// # Permissions
/// An ACL user needs `~<namespace>:* &idempotent:* +del +eval +evalsha +get +getrange +info +pexpiretime +pttl +publish
/// +scan +set +setrange +strlen +subscribe +time` and the commands for connecting. Errors name missing permissions. Further
/// permissions depend on the setup:
///
/// - Redis 6.2 needs `+persist` instead of `+pexpiretime`.
/// - A database index needs `+select`.
/// - Sentinel needs `+role`.
/// - A cluster needs `+asking +cluster|info +cluster|slots`.
/// - [`Durability`] needs `+wait` or `+waitaof`.
///
/// # Examples
/// The facade `idempotent-rs` exports the same types as `idempotent::RedisStore`, `idempotent::Executor` and so on.
///
/// ```no_run
/// # async fn doc() -> Result<(), idempotent_core::StoreError> {
/// use std::time::Duration;
///
/// use idempotent_core::Executor;
/// use idempotent_redis::{Durability, RedisStore};
///
/// let executor = Executor::new(RedisStore::connect("redis://localhost").await?);
///
/// let careful = RedisStore::builder("redis+sentinel://s1,s2,s3/mymaster")
///     .durability(Durability::wait(1, Duration::from_millis(100)))
///     .connect()
///     .await?;
/// # drop((executor, careful));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisStore(pub(crate) Arc<StoreInner>);

#[derive(Debug)]
pub(crate) struct StoreInner {
    pub(crate) topology: Topology,
    pub(crate) hub: Arc<NotificationHub>,
    pub(crate) durability: Durability,
    pub(crate) counters: Arc<Counters>,
    pub(crate) checks: StartupChecks,
    /// Number of keys that the servers had evicted when the store was opened.
    pub(crate) evicted: u64,
    /// Builder that opens the separate store for lease renewals.
    pub(crate) reopen: RedisStoreBuilder,
}

/// Retry budget of calls that have no lease.
pub(crate) const BUDGET: Duration = Duration::from_secs(2);

/// Returns the retry budget of a claim with this lease.
///
/// Callers give up on a claim after a third of its lease, without knowing its outcome.
pub(crate) fn budget(lease: Duration) -> Duration {
    lease / 4
}

impl RedisStore {
    /// Connects to the servers that `url` names, with the default settings of [`builder`](Self::builder).
    ///
    /// # Errors
    /// The same as [`RedisStoreBuilder::connect`].
    ///
    /// # Cancellation
    /// Dropping the future leaves nothing on the servers, except perhaps the namespace's epoch key.
    pub async fn connect(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Checks a URL without connecting, for example when a program reads its configuration.
    ///
    /// ```
    /// use idempotent_redis::RedisStore;
    ///
    /// assert!(RedisStore::check_url("redis://cache.internal:6379/0").is_ok());
    /// assert!(RedisStore::check_url("redis://cache.internal:99999").is_err());
    /// ```
    ///
    /// # Errors
    /// [`InvalidUrl`], with the invalid part and the remedy.
    pub fn check_url(url: &str) -> Result<(), InvalidUrl> {
        connection_url::check(url)
    }

    /// Returns a builder for a store on the server of your own client, with its TLS, user, database and socket.
    ///
    /// The store opens connections of its own, which use RESP3. For Sentinel and clusters, use a URL.
    pub fn on_client(client: redis::Client) -> RedisStoreBuilder {
        RedisStoreBuilder::on_client(client)
    }

    /// Returns a builder for further configuration.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url.into())
    }

    /// Returns counters of this store's events in this process since the store was created.
    #[must_use]
    pub fn counts(&self) -> RedisCounts {
        self.0.counters.read(self.0.hub.cache.hits())
    }

    /// Returns the router of a cluster, whose nodes fail independently.
    fn router(&self) -> Option<&ClusterRouter> {
        match &self.0.topology {
            Topology::Cluster(router) => Some(router),
            Topology::Single(_) | Topology::Sentinel(_) => None,
        }
    }

    async fn claim_on_server(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let generation = self.0.hub.cache.generation();
        let call = ScriptCall::claim(request, generation.is_some());
        let reply = self.0.call(&call, budget(request.lease)).await?;
        if self.0.durability == Durability::Primary {
            return replies::claim(reply, request, &self.0.hub.cache, generation);
        }
        Box::pin(self.granted(reply, request, generation)).await
    }

    pub(crate) async fn settle(
        &self,
        call: &ScriptCall,
        decide: impl FnOnce(Option<&Record>, idempotent_core::Timestamp) -> (Settled, Write),
    ) -> Result<Settled, StoreError> {
        replies::settled(&self.0.call(call, BUDGET).await?, decide)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        // The call to the server is boxed, so that cache hits do not carry its future.
        match self.0.hub.cache.lookup(request) {
            Some(known) => Ok(known),
            None => Box::pin(self.claim_on_server(request)).await,
        }
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.settle(&ScriptCall::renew(held, lease), |found, now| protocol::renew(found, held, lease, now)).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.complete_one(held, completion).await
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.settle(&ScriptCall::release(held, release), |found, now| protocol::release(found, held, release, now))
            .await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.inspect(key).await?.map(|seen| seen.record))
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        let all = StoreCapabilities::none()
            .with_batch(self)
            .with_watch(self)
            .with_search(self)
            .with_purge(self)
            .with_admin(self)
            .with_inspect(self)
            .with_steps(self)
            .with_order(self)
            .with_health(self)
            .with_renewal(self);
        if self.router().is_some() { all.with_nodes(self) } else { all }
    }
}

#[async_trait]
impl Renewal for RedisStore {
    async fn renewal_store(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(self.0.reopen.clone().cache(None).connect().await?))
    }
}

#[async_trait]
impl Inspect for RedisStore {
    async fn inspect(&self, key: &Key) -> Result<Option<InspectedRecord>, StoreError> {
        let found = replies::seen(self.0.call(&ScriptCall::look(key), BUDGET).await?)?;
        let seen = found.map(|(record, now)| InspectedRecord { record, now });
        Ok(seen.filter(|seen| live(Some(&seen.record), seen.now).is_some()))
    }
}

#[async_trait]
impl Admin for RedisStore {
    async fn forget(
        &self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        retention: Duration,
    ) -> Result<Settled, StoreError> {
        let call = ScriptCall::forget(key, expected, force, retention);
        let settled = self.settle(&call, |found, now| protocol::forget(found, expected, force, retention, now)).await;
        // The server notifies all processes, this one included, a moment later.
        self.0.hub.cache.forget(key.as_str().as_bytes());
        settled
    }
}

impl StoreNodes for RedisStore {
    fn node_of(&self, key: &Key) -> Option<StoreNode> {
        self.router()?.owner_of(key.as_str())
    }

    fn node_count(&self) -> usize {
        self.router().map_or(0, ClusterRouter::owner_count)
    }
}

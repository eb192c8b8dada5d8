//! The store.
mod batch;
mod browse;
pub(crate) mod builder;
mod journal;
mod order_tables;
mod replication;
mod replies;
pub(crate) mod tier;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write, live};
use idempotent_core::{
    Abilities, Admin, Claim, ClaimRequest, Completion, Consumed, Fencing, Held, Inspect, Inspected, Key, Record,
    Release, Renewal, Settled, Store, StoreError,
};

#[cfg(doc)]
use crate::CacheOptions;
use crate::batching::call::{ReplyBody, ScriptCall, ScriptReply};
use crate::cache::{CacheGeneration, PayloadKnowledge};
use crate::connection::notifications::NotificationHub;
use crate::durability::{Counters, Durability, RedisCounts};
use crate::startup::StartupChecks;
use crate::store::builder::RedisStoreBuilder;
use crate::topology::Topology;

/// Records in Redis 6.2 or newer, or Valkey: one server, the primary that sentinels name, or a cluster. Cheap to clone:
/// clones share the connections.
///
/// Each step of the protocol is one script on one key, judged by the server's clock. Calls of tasks side by side are
/// joined: one that comes alone goes out at once, others go together, up to 256 keys a script call; on a cluster, those of
/// one node in one pipeline. What this process knows to be consumed costs no command, see [`CacheOptions`].
///
/// | URL | what |
/// |---|---|
/// | `redis://[user:password@]host[:port][/db]` | one server |
/// | `redis+unix:///path[?db=N]` | one server, by its socket |
/// | `redis+sentinel://[user:password@]host[:port],…/primary[/db]` | the primary of that name |
/// | `redis+cluster://[user:password@]host[:port],…` | a cluster, by some of its nodes |
/// | `rediss…` for `redis…` | the same over TLS (feature `tls`, the facade's `redis-tls`) |
///
/// A connection belongs to the runtime that was running when it was made. Do not share a store with a runtime that is
/// neither run nor dropped.
///
/// Abilities: batch, watch, browse, purge, admin, inspect, journal, order. A listing shows this namespace, and others as far as rights
/// go. Records end by themselves; a purge removes only what had to be
/// remembered for its number. A listing goes by `SCAN`: a key that is there all the time is listed, and listed twice
/// only where the server changes the size of its table meanwhile. One that is moved to another node of a cluster meanwhile
/// may be left out, or listed twice.
///
/// # What it can lose
/// What Redis loses. A primary answers before its replicas have a write: what they had not copied when it dies is lost with
/// it, and such a key is granted again; [`Durability`] makes that rare. A server without a log on disk starts empty.
/// Where the record of a deleted key is gone, its fencing number is the server's clock: one that is set back lowers it.
///
/// # Rights
/// An ACL user needs `~<namespace>:* &idempotent:* +del +eval +evalsha +get +getrange +info +pexpiretime +pttl +publish
/// +scan +set +setrange +subscribe +time` and those of a connection; what is missing is named in the error. On 6.2
/// `+persist` stands for `+pexpiretime`; `+select` with a database index; `+role` with sentinels; `+asking +cluster|info
/// +cluster|slots` on a cluster; `+wait` or `+waitaof` with [`Durability`].
///
/// Through the facade `idempotent-rs` the same types are `idempotent::RedisStore`, `idempotent::Executor` and so on.
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
    /// Keys that the servers had evicted when the store was opened.
    pub(crate) evicted: u64,
    /// Opens the store for renewals.
    pub(crate) reopen: RedisStoreBuilder,
}

/// For steps that no lease bounds.
pub(crate) const BUDGET: Duration = Duration::from_secs(2);

/// For a claim: the caller gives it up after a third of its lease, and then does not know what has become of it.
pub(crate) fn budget(lease: Duration) -> Duration {
    lease / 4
}

impl RedisStore {
    /// Connects to the server or servers that `url` names, with the defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    /// As [`RedisStoreBuilder::connect`].
    ///
    /// # Cancellation
    /// Nothing is left behind.
    pub async fn connect(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// To set anything but the place.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url.into())
    }

    /// What has happened to this store, in this process, since it was made.
    #[must_use]
    pub fn counts(&self) -> RedisCounts {
        self.0.counters.read()
    }

    async fn claim_on_server(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let generation = self.0.hub.cache.generation();
        let call = ScriptCall::claim(request, generation.is_some());
        let reply = self.0.topology.call(&call, budget(request.lease)).await?;
        if self.0.durability == Durability::Primary {
            return replies::claim(reply, request, &self.0.hub.cache, generation);
        }
        Box::pin(self.granted(reply, request, generation)).await
    }

    pub(crate) async fn settle(
        &self,
        call: &ScriptCall,
        decide: impl FnOnce(Option<&Record>, idempotent_core::Micros) -> (Settled, Write),
    ) -> Result<Settled, StoreError> {
        replies::settled(&self.0.topology.call(call, BUDGET).await?, decide)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        // What asks the server is a future of its own: what need not ask does not carry it.
        match self.0.hub.cache.lookup(request) {
            Some(known) => Ok(known),
            None => Box::pin(self.claim_on_server(request)).await,
        }
    }

    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        self.settle(&ScriptCall::renew(held, lease), |found, now| protocol::renew(found, held, lease, now)).await
    }

    async fn complete(&self, held: &Held, completion: &Completion) -> Result<Settled, StoreError> {
        let generation = self.0.hub.cache.generation();
        let call = ScriptCall::complete(held, completion);
        let answer = self.0.topology.call(&call, BUDGET).await?;
        self.completed(held, completion, generation, &answer)
    }

    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        self.settle(&ScriptCall::release(held, release), |found, now| protocol::release(found, held, release, now))
            .await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.inspect(key).await?.map(|seen| seen.record))
    }

    fn abilities(&self) -> Abilities<'_> {
        Abilities::none()
            .with_batch(self)
            .with_watch(self)
            .with_browse(self)
            .with_purge(self)
            .with_admin(self)
            .with_inspect(self)
            .with_journal(self)
            .with_order(self)
            .with_renewal(self)
    }
}

#[async_trait]
impl Renewal for RedisStore {
    async fn renewal_store(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(self.0.reopen.clone().cache(None).connect().await?))
    }
}

impl RedisStore {
    /// What this process has done it need not ask for.
    pub(crate) fn remember(
        &self,
        held: &Held,
        completion: &Completion,
        generation: Option<CacheGeneration>,
        answer: &ScriptReply,
    ) {
        // Only what it wrote: where the key was consumed already, the first result stands.
        if let (ReplyBody::Empty, Some(fencing)) = (&answer.body, held.fencing) {
            let consumed = Consumed { fencing, value: completion.value.clone() };
            self.0.hub.cache.insert(&held.key, generation, completion.retain, PayloadKnowledge::Unknown, &consumed);
        }
    }
}

#[async_trait]
impl Inspect for RedisStore {
    async fn inspect(&self, key: &Key) -> Result<Option<Inspected>, StoreError> {
        let found = replies::seen(self.0.topology.call(&ScriptCall::look(key), BUDGET).await?)?;
        let seen = found.map(|(record, now)| Inspected { record, now });
        Ok(seen.filter(|seen| live(Some(&seen.record), seen.now).is_some()))
    }
}

#[async_trait]
impl Admin for RedisStore {
    async fn forget(&self, key: &Key, expected: Fencing, force: bool, memory: Duration) -> Result<Settled, StoreError> {
        let call = ScriptCall::forget(key, expected, force, memory);
        let settled = self.settle(&call, |found, now| protocol::forget(found, expected, force, memory, now)).await;
        // Others are told by the server, and so is this process, a moment later.
        self.0.hub.cache.forget(key.as_str().as_bytes());
        settled
    }
}

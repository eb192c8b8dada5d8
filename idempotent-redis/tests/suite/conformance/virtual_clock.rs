//! The scripts with a virtual clock: arithmetic to the µs, and expiry to the ms.
//!
//! The clock is simulated by a few lines of Lua before each script, which set the time and expire keys. The rest is the
//! real script on a real server.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Admin, Batch, Claim, ClaimHandle, ClaimRequest, Clock, Completion, FencingToken, Inspect, InspectedRecord, Key,
    KeyFilter, OrderStore, PageLimits, Purge, Record, RecordPage, Release, Search, Settled, StepRecord, StepStore,
    Store, StoreCapabilities, StoreError, StoredOrderTable, StoredSteps, Watch, Watching,
};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use idempotent_testkit::{Subject, VirtualClock};

const TIMED: &str = include_str!("virtual_clock.lua");

/// A store that sets the server's time before each call.
struct OnClock {
    store: RedisStore,
    clock: VirtualClock,
    server: Arc<RedisServer>,
}

impl OnClock {
    async fn open(server: &Arc<RedisServer>, clock: &VirtualClock, cached: bool, edit: impl Edit) -> Self {
        let timed = move |script: &str| match edit(script).split_once('\n') {
            // Reading a key expires it, too.
            Some((first, rest)) if first.starts_with("#!") => {
                format!("{}\n{TIMED}\n{rest}", first.replace("no-writes", "allow-oom"))
            }
            _ => format!("{TIMED}\n{script}"),
        };
        let builder = RedisStore::builder(server.url()).clock(Arc::new(clock.clone())).edit_scripts(timed);
        let builder = if cached { builder } else { builder.cache(None) };
        let store = builder.connect().await.unwrap();
        Self { store, clock: clock.clone(), server: server.clone() }
    }

    fn timed(&self) -> &RedisStore {
        self.server.command(&["SET", "test:clock", &self.clock.wall().0.to_string()]);
        &self.store
    }
}

/// An edit of each script, applied before the script gets its clock.
pub(crate) trait Edit: Fn(&str) -> String + Clone + Send + Sync + 'static {}
impl<E: Fn(&str) -> String + Clone + Send + Sync + 'static> Edit for E {}

/// Creates the subject on an empty server.
pub(crate) async fn subject(server: Arc<RedisServer>, cached: bool, edit: impl Edit) -> Subject {
    let clock = VirtualClock::new();
    let store = OnClock::open(&server, &clock, cached, edit.clone()).await;
    let second = OnClock::open(&server, &clock, cached, edit).await;
    Subject::new(store).second(second).on_clock(clock).rounds(20).guarded_by(server)
}

impl fmt::Debug for OnClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl Store for OnClock {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.timed().claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.timed().renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.timed().complete(held, completion).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.timed().release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.timed().peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
            .with_batch(self)
            .with_watch(self)
            .with_search(self)
            .with_purge(self)
            .with_admin(self)
            .with_inspect(self)
            .with_steps(self)
            .with_order(self)
    }
}

#[async_trait]
impl Batch for OnClock {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        self.timed().claim_all(requests).await
    }
    async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        self.timed().renew_all(held).await
    }
    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        self.timed().complete_all(done).await
    }
}

impl Watch for OnClock {
    fn watch(&self, key: &Key) -> Watching {
        self.timed().watch(key)
    }
}

#[async_trait]
impl Search for OnClock {
    async fn search(
        &self,
        filter: &KeyFilter,
        after: Option<u128>,
        limits: PageLimits,
    ) -> Result<RecordPage, StoreError> {
        // The script of the clock keeps keys of its own, which look like records of another namespace.
        let mut filter = filter.clone();
        filter.namespace.get_or_insert_with(|| "laws".to_owned());
        self.timed().search(&filter, after, limits).await
    }
}

#[async_trait]
impl Purge for OnClock {
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
        self.timed().purge(at_most).await
    }
}

#[async_trait]
impl Admin for OnClock {
    async fn forget(
        &self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        retention: Duration,
    ) -> Result<Settled, StoreError> {
        self.timed().forget(key, expected, force, retention).await
    }
}

#[async_trait]
impl Inspect for OnClock {
    async fn inspect(&self, key: &Key) -> Result<Option<InspectedRecord>, StoreError> {
        self.timed().inspect(key).await
    }
}

#[async_trait]
impl StepStore for OnClock {
    async fn steps(&self, held: &ClaimHandle, keep: Duration) -> Result<StoredSteps, StoreError> {
        self.timed().steps(held, keep).await
    }
    async fn note(&self, held: &ClaimHandle, step: &StepRecord, keep: Duration) -> Result<Settled, StoreError> {
        self.timed().note(held, step, keep).await
    }
}

#[async_trait]
impl OrderStore for OnClock {
    async fn load(&self, stream: &Key) -> Result<StoredOrderTable, StoreError> {
        self.timed().load(stream).await
    }
    async fn compare_and_swap(
        &self,
        stream: &Key,
        seen: Option<&[u8]>,
        next: &[u8],
        keep: Duration,
    ) -> Result<bool, StoreError> {
        self.timed().compare_and_swap(stream, seen, next, keep).await
    }
}

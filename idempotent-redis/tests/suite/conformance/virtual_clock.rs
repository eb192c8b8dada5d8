//! The scripts with a virtual clock: arithmetic to the µs, and expiry to the ms.
//!
//! The clock is simulated by a few lines of Lua before each script, which set the time and expire keys. The rest is the
//! real script on a real server.
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use idempotent_core::{
    Batch, Claim, ClaimHandle, ClaimRequest, Clock, Completion, Key, Record, Release, Settled, Store,
    StoreCapabilities, StoreError, Timer, Timestamp, Watch, Watching,
};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use idempotent_testkit::{FaultStore, Subject, VirtualClock};

const TIMED: &str = include_str!("virtual_clock.lua");

/// A clock that sets the server's time whenever it is read.
struct ServerClock {
    clock: VirtualClock,
    server: Arc<RedisServer>,
}

impl Clock for ServerClock {
    fn now(&self) -> Instant {
        self.server.command(&["SET", "test:clock", &self.clock.wall().0.to_string()]);
        self.clock.now()
    }
    fn wall(&self) -> Timestamp {
        self.clock.wall()
    }
    fn sleep_until(&self, deadline: Instant) -> Timer {
        self.clock.sleep_until(deadline)
    }
}

impl fmt::Debug for ServerClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerClock").field(&self.clock.wall()).finish()
    }
}

/// A store whose server has the time of the clock in each call. A [`FaultStore`] reads the clock before each call.
#[derive(Debug)]
struct OnClock {
    calls: FaultStore,
    store: RedisStore,
    clock: Arc<ServerClock>,
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
        let clock = Arc::new(ServerClock { clock: clock.clone(), server: server.clone() });
        Self { calls: FaultStore::on_clock(store.clone(), clock.clone()), store, clock }
    }

    /// Returns the store, once the server has the time of the clock.
    fn timed(&self) -> &RedisStore {
        self.clock.now();
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

#[async_trait]
impl Store for OnClock {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.calls.claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.calls.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.calls.complete(held, completion).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.calls.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.calls.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        self.calls.capabilities().with_batch(self).with_watch(self)
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

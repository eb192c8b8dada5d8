//! A worker's process as the others see it: it can be stopped for a while, and it can die with requests on the wire.
use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use idempotent::{
    Abilities, Claim, ClaimRequest, Clock, Completion, Held, Key, Micros, Record, Release, Settled, Store, StoreError,
    Timer, Watch, Watching,
};
use idempotent_testkit::{FaultStore, VirtualClock};

/// Its clock: right, but while the process is stopped no timer fires. Its wall clock is wrong.
#[derive(Clone, Debug)]
pub struct ProcessClock {
    time: VirtualClock,
    wall: VirtualClock,
    stopped_until: Arc<Mutex<Instant>>,
}

impl ProcessClock {
    pub fn new(time: &VirtualClock, skew: i64) -> Self {
        let stopped_until = Arc::new(Mutex::new(time.now()));
        Self { time: time.clone(), wall: time.skewed(skew), stopped_until }
    }

    pub fn stop_for(&self, pause: Duration) {
        let until = self.time.now() + pause;
        let mut stopped = self.stopped_until.lock().unwrap();
        *stopped = (*stopped).max(until);
    }

    /// Ends when the process runs.
    async fn running(&self) {
        loop {
            let until = *self.stopped_until.lock().unwrap();
            if until <= self.time.now() {
                return;
            }
            self.time.sleep_until(until).await;
        }
    }

    pub async fn sleep(&self, pause: Duration) {
        self.sleep_until(self.now() + pause).await;
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Instant {
        self.time.now()
    }

    fn wall(&self) -> Micros {
        self.wall.wall()
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        let (clock, first) = (self.clone(), self.time.sleep_until(deadline));
        Box::pin(async move {
            first.await;
            clock.running().await;
        })
    }
}

/// Its way to the store. What it has sent is under way, whether it still waits for an answer or not.
#[derive(Clone, Debug)]
pub struct Wire {
    pub store: FaultStore,
    clock: ProcessClock,
    dead: Arc<AtomicBool>,
}

impl Wire {
    pub fn new(store: FaultStore, clock: &ProcessClock) -> Self {
        Self { store, clock: clock.clone(), dead: Arc::default() }
    }

    /// The process is gone. What it has sent may still arrive, unless the network dies with it.
    pub fn kill(&self, network_too: bool) {
        self.dead.store(true, Ordering::SeqCst);
        if network_too {
            self.store.kill();
        }
    }

    async fn alive(&self) {
        self.clock.running().await;
        if self.dead.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
    }

    async fn call<T, Fut>(&self, ask: impl FnOnce(FaultStore) -> Fut + Send) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.alive().await;
        let answer = tokio::spawn(ask(self.store.clone())).await;
        self.alive().await;
        match answer {
            Ok(answer) => answer,
            // The runtime is going down.
            Err(_) => pending().await,
        }
    }
}

#[async_trait]
impl Store for Wire {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let request = request.clone();
        self.call(|store| async move { store.claim(&request).await }).await
    }

    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        let held = held.clone();
        self.call(move |store| async move { store.renew(&held, lease).await }).await
    }

    async fn complete(&self, held: &Held, done: &Completion) -> Result<Settled, StoreError> {
        let (held, done) = (held.clone(), done.clone());
        self.call(|store| async move { store.complete(&held, &done).await }).await
    }

    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        let (held, release) = (held.clone(), release.clone());
        self.call(|store| async move { store.release(&held, &release).await }).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let key = key.clone();
        self.call(|store| async move { store.peek(&key).await }).await
    }

    fn abilities(&self) -> Abilities<'_> {
        match self.store.abilities().watch {
            Some(_) => Abilities::none().with_watch(self),
            None => Abilities::none(),
        }
    }
}

impl Watch for Wire {
    fn watch(&self, key: &Key) -> Watching {
        let Some(watch) = self.store.abilities().watch else { return Box::pin(pending()) };
        let (wire, watching) = (self.clone(), watch.watch(key));
        Box::pin(async move {
            watching.await;
            wire.alive().await;
        })
    }
}

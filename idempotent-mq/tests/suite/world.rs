//! A world on a virtual clock: a store that fails on demand, a simulated broker, and consumers that are processes.
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use idempotent_core::{
    Clock, Executor, ExecutorBuilder, Identity, Key, Lease, MemoryStore, Policy, Record, Scene, Store,
};
use idempotent_mq::{
    Consumer, ConsumerBuilder, ConsumerCounters, ConsumerCounts, ConsumerGauges, HandlerResult, KeyFrom, Message,
    MessageHandler, Messages, SetupError, Source, SourceError,
};
use idempotent_testkit::{FaultStore, SeededEntropy, VirtualClock};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::broker::{Broker, SimulatedSource, Ways};

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub struct World {
    pub clock: VirtualClock,
    pub store: FaultStore,
    pub broker: Broker,
    seeds: AtomicU32,
}

/// One consumer, as a process of its own: its store is its own way to the one store.
pub struct Process {
    pub store: FaultStore,
    pub executor: Executor,
    pub counters: ConsumerCounters,
    stop: Option<oneshot::Sender<()>>,
    pub task: JoinHandle<Result<ConsumerCounts, SourceError>>,
    clock: VirtualClock,
}

pub type Building = ConsumerBuilder<SimulatedSource>;

impl World {
    pub fn new() -> Self {
        Self::with(Ways::default())
    }

    pub fn with(ways: Ways) -> Self {
        let clock = VirtualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let store = FaultStore::new(store, &clock);
        Self { broker: Broker::new(&clock, ways), store, clock, seeds: AtomicU32::new(0) }
    }

    pub fn executor(&self, policy: Policy) -> (FaultStore, Executor) {
        let seed = self.seeds.fetch_add(1, SeqCst);
        let store = self.store.worker(format!("{seed}"));
        let builder: ExecutorBuilder = Executor::builder(store.clone());
        let executor = builder
            .clock(Arc::new(self.clock.clone()))
            .entropy(Arc::new(SeededEntropy::new(u64::from(seed))))
            .policy(Scene::Mq, policy.or(Policy::new().jitter(0)))
            .build()
            .unwrap();
        (store, executor)
    }

    /// Starts a consumer of the group "billing".
    pub async fn consume(&self, policy: Policy, handling: MessageHandler) -> Process {
        self.consume_by(policy, handling, |builder| builder).await
    }

    pub async fn consume_by(
        &self,
        policy: Policy,
        handling: MessageHandler,
        more: impl FnOnce(Building) -> Building,
    ) -> Process {
        self.consume_from(self.broker.connect(), "billing", policy, handling, more).await
    }

    pub async fn consume_from<S: Source>(
        &self,
        source: S,
        group: &str,
        policy: Policy,
        handling: MessageHandler,
        more: impl FnOnce(ConsumerBuilder<S>) -> ConsumerBuilder<S>,
    ) -> Process {
        let (store, executor) = self.executor(policy);
        let consumer = more(Consumer::builder(source, group, &executor)).build(handling).unwrap();
        self.start(store, executor, consumer).await
    }

    pub async fn start<S: Source>(&self, store: FaultStore, executor: Executor, consumer: Consumer<S>) -> Process {
        let counters = consumer.counters();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(consumer.run(async move {
            if stopped.await.is_err() {
                pending::<()>().await;
            }
        }));
        self.clock.settle().await;
        Process { store, executor, counters, stop: Some(stop), task, clock: self.clock.clone() }
    }

    /// Returns the setup error for these settings.
    pub fn refused(&self, policy: Policy, handling: MessageHandler, more: impl FnOnce(Building) -> Building) -> String {
        let (_, executor) = self.executor(policy);
        let built: Result<_, SetupError> =
            more(Consumer::builder(self.broker.connect(), "billing", &executor)).build(handling);
        built.map(|_| ()).unwrap_err().to_string()
    }

    /// The record of a message keyed by this text.
    pub async fn record(&self, key: &str) -> Option<Record> {
        self.store.peek(&key_of(key)).await.unwrap()
    }
}

/// Returns a world with one consumer, whose handler takes this time and succeeds.
pub async fn consuming(takes: Duration) -> (World, Arc<Job>, Process) {
    ending(takes, |_| HandlerResult::Done).await
}

/// Returns a world with one consumer, whose handler has this result for each run.
pub async fn ending(takes: Duration, ends: fn(u32) -> HandlerResult) -> (World, Arc<Job>, Process) {
    let world = World::new();
    let job = Job::ends(&world, takes, ends);
    let process = world.consume(Policy::new(), job.by_id()).await;
    (world, job, process)
}

pub fn key_of(key: &str) -> Key {
    Identity::new(Scene::Mq, "billing", key).key("idempotent").unwrap()
}

impl Process {
    /// SIGTERM.
    pub async fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.clock.settle().await;
    }

    /// SIGKILL: nothing it sends any more arrives. The broker notices at `Broker::cut`.
    pub async fn kill(self) {
        self.store.kill();
        self.task.abort();
        assert!(self.task.await.is_err_and(|ended| ended.is_cancelled()));
        self.clock.settle().await;
    }

    pub fn counts(&self) -> ConsumerCounts {
        self.counters.counts()
    }

    pub fn gauges(&self) -> ConsumerGauges {
        self.counters.gauges()
    }
}

/// The plan of a handler, and the number of its runs.
pub struct Job {
    pub runs: AtomicU32,
    pub takes: Duration,
    pub ends: fn(u32) -> HandlerResult,
    clock: VirtualClock,
    pub seen: std::sync::Mutex<Vec<Seen>>,
}

#[derive(Clone, Debug)]
pub struct Seen {
    pub at: u128,
    pub id: Option<String>,
    pub attempt: Option<u32>,
    pub fencing: Option<u64>,
}

impl Job {
    pub fn ok(world: &World, takes: Duration) -> Arc<Self> {
        Self::ends(world, takes, |_| HandlerResult::Done)
    }

    /// `ends`: by the number of the run.
    pub fn ends(world: &World, takes: Duration, ends: fn(u32) -> HandlerResult) -> Arc<Self> {
        let (runs, seen) = (AtomicU32::new(0), std::sync::Mutex::default());
        Arc::new(Self { runs, takes, ends, clock: world.clock.clone(), seen })
    }

    pub fn runs(&self) -> u32 {
        self.runs.load(SeqCst)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// At what times it was run, in ms.
    pub fn times(&self) -> Vec<u128> {
        self.seen().into_iter().map(|seen| seen.at).collect()
    }

    pub async fn run<T>(&self, message: Message<T>) -> HandlerResult {
        let run = self.runs.fetch_add(1, SeqCst) + 1;
        let lease = Lease::current();
        self.seen.lock().unwrap().push(Seen {
            at: self.clock.elapsed().as_millis(),
            id: message.delivery.id.clone(),
            attempt: lease.as_ref().map(Lease::attempt),
            fencing: lease.as_ref().map(|lease| lease.fencing().0),
        });
        self.clock.sleep_until(self.clock.now() + self.takes).await;
        (self.ends)(run)
    }

    /// Returns a handler of raw bodies with the message id as key.
    pub fn by_id(self: &Arc<Self>) -> MessageHandler {
        self.keyed(KeyFrom::message_id())
    }

    pub fn keyed(self: &Arc<Self>, key: KeyFrom<()>) -> MessageHandler {
        Messages::raw().keyed(key).run(self.function())
    }

    /// Returns a function that runs this job for a message.
    pub fn function<T: Send + Sync + 'static>(
        self: &Arc<Self>,
    ) -> impl Fn(Message<T>) -> Pin<Box<dyn Future<Output = HandlerResult> + Send>> + Send + Sync + 'static + use<T>
    {
        let job = self.clone();
        move |message| {
            let job = job.clone();
            Box::pin(async move { job.run(message).await })
        }
    }
}

pub fn again(_: u32) -> HandlerResult {
    HandlerResult::Again { after: None, error: "no stock".into() }
}

/// Fails at the first run only.
pub fn again_once(run: u32) -> HandlerResult {
    if run == 1 { again(run) } else { HandlerResult::Done }
}

pub fn never(_: u32) -> HandlerResult {
    HandlerResult::Never { reason: "no".into() }
}

//! The broker of all tests of this binary. Each test has its own queues.
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use idempotent_core::{Executor, Lease, MemoryStore, Policy, Scene};
use idempotent_harness::servers::RabbitServer;
use idempotent_mq::{
    Consumer, ConsumerBuilder, ConsumerCounters, ConsumerCounts, Delivery, HandlerResult, KeyFrom, Message,
    MessageHandler, Messages, Received, Settlement, Source, SourceError,
};
use idempotent_rabbitmq::{Queue, RabbitSource, RabbitTag};
use lapin::message::BasicGetMessage;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, oneshot};
use tokio::task::JoinHandle;

pub static SERVER: LazyLock<RabbitServer> = LazyLock::new(RabbitServer::start);
/// A lock for reading by tests that share the broker, and for writing by tests that stop the broker.
static BROKER: RwLock<()> = RwLock::const_new(());
/// The main queues of the tests so far: a queue that two tests use has the messages of both.
static QUEUES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
/// Maximum time of a short operation on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(180);

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The queue of one test, and a plain client in addition to the source.
pub struct World {
    pub queue: String,
    pub admin: Channel,
    _connection: Connection,
    _turn: Turn,
}

enum Turn {
    Shared { _turn: RwLockReadGuard<'static, ()> },
    Alone { _turn: RwLockWriteGuard<'static, ()> },
}

impl World {
    pub async fn new(queue: &str) -> Self {
        let _turn = BROKER.read().await;
        Self::with(queue, Turn::Shared { _turn }).await
    }

    /// Waits until no other test uses the broker, and excludes other tests until the drop.
    pub async fn alone(queue: &str) -> Self {
        let _turn = BROKER.write().await;
        Self::with(queue, Turn::Alone { _turn }).await
    }

    async fn with(queue: &str, _turn: Turn) -> Self {
        assert!(QUEUES.lock().unwrap().insert(queue.to_owned()), "another test uses the queue {queue}");
        let (connection, admin) = client().await;
        Self { queue: queue.to_owned(), admin, _connection: connection, _turn }
    }

    /// Connects the plain client again after an outage.
    pub async fn reconnect(&mut self) {
        (self._connection, self.admin) = client().await;
    }

    pub fn source(&self) -> RabbitSource {
        self.source_of(Queue::classic(&self.queue))
    }

    pub fn source_of(&self, queue: Queue) -> RabbitSource {
        RabbitSource::builder(SERVER.url(), queue).build().unwrap()
    }

    /// Returns a source that has subscribed to its queue.
    pub async fn opened(&self, queue: Queue) -> ManualSource {
        let mut held = ManualSource(self.source_of(queue), self.queue.clone());
        self.connect(&mut held).await;
        held
    }

    /// Waits until the source has subscribed. The queue is empty.
    pub async fn connect(&self, held: &mut ManualSource) {
        let queue = held.1.clone();
        tokio::select! {
            early = held.0.receive(10) => panic!("{:?}", early.map(drop)),
            () = until("a subscription", async || (self.consumers(&queue).await? > 0).then_some(())) => {}
        }
    }

    /// Waits for a subscription to the queue.
    pub async fn subscribed(&self) {
        until("a subscription", async || (self.consumers(&self.queue).await? > 0).then_some(())).await;
    }

    pub async fn consumers(&self, queue: &str) -> Option<u32> {
        // The check of a missing queue closes the channel. A channel that is opened at this moment may get the error of the closed one.
        let channel = self._connection.create_channel().await.ok()?;
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        Some(channel.queue_declare(queue.into(), options, FieldTable::default()).await.ok()?.consumer_count())
    }

    pub async fn send(&self, body: &[u8], properties: BasicProperties) {
        self.send_to("", &self.queue, body, properties).await;
    }

    pub async fn send_to(&self, exchange: &str, key: &str, body: &[u8], properties: BasicProperties) {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent = self.admin.basic_publish(exchange.into(), key.into(), options, body, properties).await.unwrap();
        assert!(matches!(sent.await.unwrap(), Confirmation::Ack(None)), "no queue is bound for {key}");
    }

    pub async fn send_id(&self, id: &str) {
        self.send(b"{}", named(id)).await;
    }

    pub async fn declare(&self, queue: &str) {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.admin.queue_declare(queue.into(), options, FieldTable::default()).await.unwrap();
    }

    pub async fn delete(&self, queue: &str) {
        self.admin.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
    }

    /// Returns the number of ready messages in an existing queue.
    pub async fn count(&self, queue: &str) -> u32 {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        self.admin.queue_declare(queue.into(), options, FieldTable::default()).await.unwrap().message_count()
    }

    pub async fn take(&self, queue: &str) -> Option<BasicGetMessage> {
        self.admin.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await.unwrap()
    }

    /// Takes all messages out of the queue. Returns how often each id was in the queue.
    pub async fn ids(&self) -> BTreeMap<String, u32> {
        let mut ids = BTreeMap::new();
        while let Some(message) = self.take(&self.queue).await {
            *ids.entry(message.properties.message_id().as_ref().unwrap().to_string()).or_default() += 1;
        }
        ids
    }

    /// Kills the broker with SIGKILL after it has stored the metadata of its queues.
    pub async fn kill_broker(&self) {
        let kill = || {
            SERVER.sync();
            SERVER.kill();
        };
        tokio::task::spawn_blocking(kill).await.unwrap();
    }

    pub async fn dead(&self) -> BasicGetMessage {
        let queue = format!("{}.dead", self.queue);
        until("a dead letter", async || self.take(&queue).await).await
    }
}

async fn client() -> (Connection, Channel) {
    // Starting the server blocks the thread.
    let url = tokio::task::spawn_blocking(|| SERVER.url()).await.unwrap();
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    (connection, channel)
}

pub fn named(id: &str) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into())
}

/// Returns the end of the broker's log, if a test has started the broker.
#[allow(clippy::incompatible_msrv, reason = "tests run with the newest `rust-version` of all crates")]
fn log() -> String {
    LazyLock::get(&SERVER).map(RabbitServer::log).unwrap_or_default()
}

/// Polls until there is a value, for [`LIMIT`] at most.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}; the broker says\n{}", log());
        tokio::time::sleep(ms(10)).await;
    }
}

pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
}

/// A source without a consumer, and the name of its queue.
pub struct ManualSource(pub RabbitSource, pub String);

impl ManualSource {
    pub async fn next(&mut self) -> (Delivery, RabbitTag) {
        match within("a delivery", self.0.receive(1)).await.unwrap() {
            Received::Deliveries(mut one) => one.remove(0),
            other => panic!("{other:?}"),
        }
    }

    pub async fn settle(&self, (delivery, tag): &(Delivery, RabbitTag), how: Settlement) -> Result<(), SourceError> {
        within("a settlement", self.0.settler().settle(delivery, tag, &how)).await
    }
}

/// A running consumer.
pub struct Process {
    pub counters: ConsumerCounters,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<ConsumerCounts, SourceError>>,
}

pub fn executor(store: &Arc<MemoryStore>, policy: Policy) -> Executor {
    let policy = policy.or(Policy::new().retry_delay(ms(100)).in_flight_delay(ms(100)).jitter(0));
    Executor::builder(store.clone()).policy(Scene::Mq, policy).build().unwrap()
}

impl Process {
    pub fn start(
        source: RabbitSource,
        group: &str,
        executor: &Executor,
        handling: MessageHandler,
        more: impl FnOnce(ConsumerBuilder<RabbitSource>) -> ConsumerBuilder<RabbitSource>,
    ) -> Self {
        let consumer = more(Consumer::builder(source, group.to_owned(), executor)).build(handling).unwrap();
        let counters = consumer.counters();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(consumer.run(async move {
            if stopped.await.is_err() {
                pending::<()>().await;
            }
        }));
        Self { counters, stop: Some(stop), task }
    }

    pub fn counts(&self) -> ConsumerCounts {
        self.counters.counts()
    }

    /// Stops the consumer like SIGKILL, except that its connection closes at once.
    pub fn kill(self) {
        self.task.abort();
    }

    /// Stops the consumer like SIGTERM, and waits for its end.
    pub async fn stop(mut self) -> ConsumerCounts {
        let _ = self.stop.take().unwrap().send(());
        within("the drain", self.task).await.unwrap().unwrap()
    }

    /// Waits until the consumer ends without being stopped.
    pub async fn ended(self) -> Result<ConsumerCounts, SourceError> {
        within("the end", self.task).await.unwrap()
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&ConsumerCounts) -> bool) {
        until(what, async || holds(&self.counts()).then_some(())).await;
    }
}

/// The runs of a handler.
#[derive(Default)]
pub struct Log {
    runs: AtomicU32,
    seen: Mutex<Vec<Seen>>,
}

#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    pub id: Option<String>,
    /// The attempts of the claim and of the message.
    pub attempts: (Option<u32>, Option<u32>),
}

impl Log {
    pub fn note<T>(&self, message: &Message<T>) -> u32 {
        let attempt = Lease::current().map(|lease| lease.attempt());
        let (id, at) = (message.delivery.id.clone(), Instant::now());
        self.seen.lock().unwrap().push(Seen { at, id, attempts: (attempt, message.delivery.attempt) });
        self.runs.fetch_add(1, SeqCst) + 1
    }

    pub fn runs(&self) -> u32 {
        self.runs.load(SeqCst)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns a handler of raw bodies, keyed by the message id. Its result depends on the number of the run.
    pub fn by_id<F: Future<Output = HandlerResult> + Send + 'static>(
        self: &Arc<Self>,
        then: impl Fn(u32) -> F + Send + Sync + 'static,
    ) -> MessageHandler {
        self.keyed(KeyFrom::message_id(), then)
    }

    pub fn keyed<F: Future<Output = HandlerResult> + Send + 'static>(
        self: &Arc<Self>,
        key: KeyFrom<()>,
        then: impl Fn(u32) -> F + Send + Sync + 'static,
    ) -> MessageHandler {
        let log = self.clone();
        Messages::raw().keyed(key).run(move |message| then(log.note(&message)))
    }
}

pub async fn done(_: u32) -> HandlerResult {
    HandlerResult::Done
}

pub async fn again(_: u32) -> HandlerResult {
    HandlerResult::Again { after: None, error: "no stock".into() }
}

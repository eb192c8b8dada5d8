//! A server per test, and helpers.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{Executor, MemoryStore, Timestamp};
use idempotent_harness::servers::{RedisServer, Value};
use idempotent_mq::{
    Consumer, ConsumerCounters, ConsumerCounts, Delivery, MessageHandler, Received, Retry, Settle, Settlement, Source,
    SourceError,
};
use idempotent_redis_streams::{StartPosition, StreamsSource, StreamsSourceBuilder, StreamsTag};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Limit for events that are certain to happen.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) server: RedisServer,
    pub(crate) executor: Executor,
}

/// A consumer that runs in a task.
pub(crate) struct Running {
    pub(crate) counters: ConsumerCounters,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<ConsumerCounts, SourceError>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::on(RedisServer::start())
    }

    pub(crate) fn on(server: RedisServer) -> Self {
        Self { server, executor: Executor::new(MemoryStore::new()) }
    }

    pub(crate) fn builder(&self, consumer: &str) -> StreamsSourceBuilder {
        Self::builder_at(&self.server.url(), consumer)
    }

    /// Returns a builder for the group `billing` with an idle time of 600 ms.
    pub(crate) fn builder_at(url: &str, consumer: &str) -> StreamsSourceBuilder {
        StreamsSource::builder(url, "orders", "billing")
            .declare(StartPosition::Beginning)
            .consumer(consumer)
            .min_idle(ms(600))
    }

    pub(crate) async fn source(&self, consumer: &str) -> StreamsSource {
        self.builder(consumer).connect().await.unwrap()
    }

    pub(crate) fn send(&self, body: impl AsRef<[u8]>) -> String {
        self.server.command(&[b"XADD", &b"orders"[..], b"*", b"body", body.as_ref()]).text()
    }

    /// Returns consumer and delivery counter of the group's pending entries.
    pub(crate) fn pending(&self) -> Vec<(String, i64)> {
        let Value::Array(entries) = self.server.command(&["XPENDING", "orders", "billing", "-", "+", "1000"]) else {
            return Vec::new();
        };
        let one = |entry: &Value| match entry {
            Value::Array(parts) => (parts[1].text(), parts[3].text().parse().unwrap()),
            other => panic!("{other:?}"),
        };
        entries.iter().map(one).collect()
    }

    /// Returns the entries of a stream, each as names and values.
    pub(crate) fn entries(&self, stream: &str) -> Vec<Vec<Vec<u8>>> {
        let Value::Array(entries) = self.server.command(&["XRANGE", stream, "-", "+"]) else { panic!("no stream") };
        let fields = |entry: &Value| {
            let Value::Array(parts) = entry else { panic!("{entry:?}") };
            let Value::Array(fields) = &parts[1] else { panic!("{entry:?}") };
            fields.iter().map(|field| if let Value::Bytes(bytes) = field { bytes.clone() } else { panic!() }).collect()
        };
        entries.iter().map(fields).collect()
    }

    /// Returns the number of calls of a command.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let line = self.server.info(&format!("cmdstat_{command}"));
        let calls = line.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    }

    pub(crate) fn run(
        &self,
        source: StreamsSource,
        handling: MessageHandler,
        prefetch: usize,
        concurrency: usize,
    ) -> Running {
        let builder = Consumer::builder(source, "billing", &self.executor);
        let builder = builder.prefetch(prefetch).concurrency(concurrency);
        let builder = builder.schedule(idempotent_mq::Schedule::exponential(ms(50), ms(200)));
        Running::new(builder.grace(Duration::from_secs(5)).build(handling).unwrap())
    }
}

impl Running {
    pub(crate) fn new(consumer: Consumer<StreamsSource>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let counters = consumer.counters();
        let task = tokio::spawn(consumer.run(async { drop(stopped.await) }));
        Self { counters, stop: Some(stop), task }
    }

    /// Kills the consumer without settling anything.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// Starts to drain.
    pub(crate) fn drain(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn ended(self) -> Result<ConsumerCounts, SourceError> {
        drop(self.stop);
        tokio::time::timeout(LIMIT, self.task).await.unwrap().unwrap()
    }
}

/// Waits until there are entries.
pub(crate) async fn receive(source: &mut StreamsSource, room: usize) -> Vec<(Delivery, StreamsTag)> {
    let receiving = async {
        loop {
            let Received::Deliveries(some) = source.receive(room).await.unwrap() else { panic!("nothing is revoked") };
            if !some.is_empty() {
                return some;
            }
        }
    };
    tokio::time::timeout(LIMIT, receiving).await.unwrap()
}

pub(crate) async fn one(source: &mut StreamsSource) -> (Delivery, StreamsTag) {
    receive(source, 1).await.pop().unwrap()
}

/// Keeps receiving and expects no entries until `over`.
pub(crate) async fn nothing_until(source: &mut StreamsSource, over: impl Fn() -> bool) {
    let start = Instant::now();
    while !over() {
        assert!(start.elapsed() < LIMIT, "the end has not come");
        let Received::Deliveries(some) = source.receive(8).await.unwrap() else { panic!("nothing is revoked") };
        assert!(some.is_empty(), "{some:?}");
    }
}

pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < LIMIT, "still not: {what}");
        tokio::time::sleep(ms(5)).await;
    }
}

pub(crate) async fn settle(settler: &Arc<dyn Settle<StreamsTag>>, held: &(Delivery, StreamsTag), how: Settlement) {
    settler.settle(&held.0, &held.1, &how).await.unwrap();
}

pub(crate) fn retry(after: Duration) -> Settlement {
    Settlement::Retry(Retry::after(after, Timestamp(1)))
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

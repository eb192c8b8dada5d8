//! A server per test, and helpers.
use std::time::{Duration, Instant};

use idempotent_core::{Executor, MemoryStore};
use idempotent_harness::servers::{RedisServer, Value};
use idempotent_mq::{MessageHandler, Received, Source};
use idempotent_redis_streams::{StartPosition, StreamsSource, StreamsSourceBuilder};
use idempotent_testkit::broker::testing::billing;
pub(crate) use idempotent_testkit::broker::testing::{LIMIT, Running, one, receive, retry, settle, until};

pub(crate) struct World {
    pub(crate) server: RedisServer,
    pub(crate) executor: Executor,
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
        self.add("orders", &[b"body".as_slice(), body.as_ref()])
    }

    /// Adds an entry with these names and values to a stream, and returns its id.
    pub(crate) fn add(&self, stream: &str, fields: &[impl AsRef<[u8]>]) -> String {
        let mut command: Vec<&[u8]> = vec![b"XADD", stream.as_bytes(), b"*"];
        command.extend(fields.iter().map(AsRef::as_ref));
        let added = self.server.command(&command);
        assert!(!added.is_error(), "{added:?}");
        added.text()
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
        let builder = billing(source, &self.executor).prefetch(prefetch).concurrency(concurrency);
        Running::new(builder.build(handling).unwrap())
    }
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

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

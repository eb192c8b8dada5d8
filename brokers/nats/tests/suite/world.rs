//! A server per test, and helpers.
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, Context};
use idempotent_core::{Executor, MemoryStore, Timestamp};
use idempotent_harness::servers::NatsServer;
use idempotent_mq::{
    Consumer, ConsumerBuilder, ConsumerCounts, Delivery, MessageHandler, Received, Retry, Settle, Settlement, Source,
    SourceError,
};
use idempotent_nats::{JetStreamSource, JetStreamSourceBuilder, JetStreamTag};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Limit for events that are certain to happen.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) server: NatsServer,
    pub(crate) client: Context,
    pub(crate) executor: Executor,
}

/// A consumer that runs in a task.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<ConsumerCounts, SourceError>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(NatsServer::start()).await
    }

    pub(crate) async fn on(server: NatsServer) -> Self {
        let client = jetstream::new(async_nats::connect(server.address()).await.unwrap());
        Self { server, client, executor: Executor::new(MemoryStore::new()) }
    }

    /// Returns a builder for the consumer `billing` of the stream `ORDERS`, which redelivers after 600 ms.
    pub(crate) fn builder(&self) -> JetStreamSourceBuilder {
        Self::builder_at(self.server.url())
    }

    pub(crate) fn builder_at(url: String) -> JetStreamSourceBuilder {
        JetStreamSource::builder(url, "ORDERS", "billing").declare(["orders.>"]).ack_wait(ms(600))
    }

    pub(crate) async fn source(&self) -> JetStreamSource {
        self.builder().connect().await.unwrap()
    }

    /// Publishes a message, and returns whether the stream has stored it.
    pub(crate) async fn sent(&self, body: &str) -> bool {
        match self.client.publish("orders.new", body.to_owned().into()).await {
            Ok(confirmation) => confirmation.await.is_ok(),
            Err(_) => false,
        }
    }

    pub(crate) async fn send(&self, body: &str) {
        assert!(self.sent(body).await, "the stream does not store `{body}`");
    }

    /// Returns the number of messages that are not acknowledged, and of those among them that no consumer has received. Waits for a
    /// server that is starting.
    pub(crate) async fn open(&self) -> (u64, u64) {
        let mut open = None;
        let reported = async || {
            open = self.reported().await;
            open.is_some()
        };
        until("the server reports the consumer", reported).await;
        open.unwrap()
    }

    async fn reported(&self) -> Option<(u64, u64)> {
        let stream = self.client.get_stream("ORDERS").await.ok()?;
        let info = stream.consumer_info("billing").await.ok()?;
        let held = u64::try_from(info.num_ack_pending).unwrap();
        Some((info.num_pending + held, info.num_pending))
    }

    pub(crate) fn consumer(&self, source: JetStreamSource) -> ConsumerBuilder<JetStreamSource> {
        let builder = Consumer::builder(source, "billing", &self.executor).prefetch(8).concurrency(4);
        builder.schedule(idempotent_mq::Schedule::exponential(ms(50), ms(200))).grace(Duration::from_secs(5))
    }

    pub(crate) fn run(&self, source: JetStreamSource, handling: MessageHandler) -> Running {
        Running::new(self.consumer(source).build(handling).unwrap())
    }
}

impl Running {
    pub(crate) fn new(consumer: Consumer<JetStreamSource>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(consumer.run(async { drop(stopped.await) }));
        Self { stop: Some(stop), task }
    }

    /// Kills the consumer without settling anything.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// Waits until the consumer ends without a request.
    pub(crate) async fn ended_by_itself(self) -> Result<ConsumerCounts, SourceError> {
        tokio::time::timeout(LIMIT, self.task).await.unwrap().unwrap()
    }

    pub(crate) async fn ended(mut self) -> Result<ConsumerCounts, SourceError> {
        drop(self.stop.take());
        tokio::time::timeout(LIMIT, self.task).await.unwrap().unwrap()
    }
}

/// Waits until there are messages.
pub(crate) async fn receive(source: &mut JetStreamSource, room: usize) -> Vec<(Delivery, JetStreamTag)> {
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

pub(crate) async fn one(source: &mut JetStreamSource) -> (Delivery, JetStreamTag) {
    receive(source, 1).await.pop().unwrap()
}

pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !so().await {
        assert!(start.elapsed() < LIMIT, "still not: {what}");
        tokio::time::sleep(ms(5)).await;
    }
}

pub(crate) async fn settle(settler: &Arc<dyn Settle<JetStreamTag>>, held: &(Delivery, JetStreamTag), how: Settlement) {
    settler.settle(&held.0, &held.1, &how).await.unwrap();
}

pub(crate) fn retry(after: Duration) -> Settlement {
    Settlement::Retry(Retry::after(after, Timestamp(1)))
}

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

//! A server per test, and helpers.
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use idempotent_core::{Executor, MemoryStore};
use idempotent_harness::servers::NatsServer;
use idempotent_mq::{ConsumerBuilder, MessageHandler};
use idempotent_nats::{JetStreamSource, JetStreamSourceBuilder};
use idempotent_testkit::broker::testing::billing;
pub(crate) use idempotent_testkit::broker::testing::{LIMIT, Running, counting, one, retry, settle, until};

pub(crate) struct World {
    pub(crate) server: NatsServer,
    pub(crate) client: Context,
    pub(crate) executor: Executor,
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

    pub(crate) async fn send(&self, body: &str) {
        self.client.publish("orders.new", body.to_owned().into()).await.unwrap().await.unwrap();
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
        billing(source, &self.executor)
    }

    pub(crate) fn run(&self, source: JetStreamSource, handling: MessageHandler) -> Running {
        Running::new(self.consumer(source).build(handling).unwrap())
    }
}

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

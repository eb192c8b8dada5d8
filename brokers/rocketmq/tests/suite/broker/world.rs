//! The broker that the tests share, with a topic for each test. Tests that stop the broker start their own.
use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use idempotent_core::{Executor, MemoryStore, Policy, Scene};
use idempotent_harness::servers::RocketServer;
use idempotent_mq::{Delivery, OutboundMessage, Received, Settlement, Source, SourceError, SourceErrorKind};
use idempotent_rocketmq::{RocketPublisher, RocketSource, RocketSourceBuilder, RocketTag};

use crate::plain_client::PlainClient;

/// Time limit of an event on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
static SERVER: LazyLock<Arc<RocketServer>> = LazyLock::new(|| Arc::new(RocketServer::start()));

pub(crate) struct World {
    pub(crate) server: Arc<RocketServer>,
    pub(crate) publisher: RocketPublisher,
    pub(crate) topic: String,
    pub(crate) group: String,
}

impl World {
    /// Creates a topic with one queue on the shared broker.
    pub(crate) async fn new(topic: &str) -> Self {
        Self::on(tokio::task::spawn_blocking(|| SERVER.clone()).await.unwrap(), topic).await
    }

    /// Creates a topic on a broker that only this test uses.
    pub(crate) async fn alone(topic: &str) -> Self {
        Self::on(tokio::task::spawn_blocking(|| Arc::new(RocketServer::start())).await.unwrap(), topic).await
    }

    pub(crate) async fn on(server: Arc<RocketServer>, topic: &str) -> Self {
        let publisher = RocketPublisher::builder(server.url()).build().unwrap();
        let world = Self { server, publisher, topic: topic.to_owned(), group: format!("{topic}-group") };
        world.source().declare(1).await.unwrap();
        world
    }

    pub(crate) fn source(&self) -> RocketSource {
        self.builder().build().unwrap()
    }

    pub(crate) fn builder(&self) -> RocketSourceBuilder {
        RocketSource::builder(self.server.url(), &self.topic, &self.group)
    }

    pub(crate) fn consumer(&self) -> ManualConsumer {
        ManualConsumer(self.source())
    }

    /// Returns a message to the topic.
    pub(crate) fn message(&self, id: &str, body: &str) -> OutboundMessage {
        OutboundMessage::new(&self.topic, id, body)
    }

    pub(crate) async fn publish(&self, message: OutboundMessage) {
        self.publisher.publish(&message).await.unwrap();
    }

    /// Starts a plain client that collects the dead letters.
    pub(crate) async fn plain_client(&self) -> PlainClient {
        PlainClient::start(self.server.name_server(), format!("{}-dead", self.group)).await
    }

    /// Returns the number of unacknowledged messages, without those that wait for a delay.
    pub(crate) async fn left(&self) -> u64 {
        let (topic, group) = (self.topic.clone(), self.group.clone());
        self.blocking(move |server| server.backlog(&topic, &group) + server.backlog(&format!("{group}-retry"), &group))
            .await
    }

    pub(crate) async fn emptied(&self) {
        until("the broker has all acknowledgements", async || (self.left().await == 0).then_some(())).await;
    }

    pub(crate) async fn blocking<T: Send + 'static>(&self, ask: impl FnOnce(&RocketServer) -> T + Send + 'static) -> T {
        let server = self.server.clone();
        tokio::task::spawn_blocking(move || ask(&server)).await.unwrap()
    }
}

/// Polls until there is a result, for a minute at most.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < end, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn within<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("not within a minute: {what}"))
}

/// A source without a consumer runtime.
pub(crate) struct ManualConsumer(pub(crate) RocketSource);

impl ManualConsumer {
    pub(crate) async fn next(&mut self) -> (Delivery, RocketTag) {
        self.take(1).await.remove(0)
    }

    pub(crate) async fn take(&mut self, room: usize) -> Vec<(Delivery, RocketTag)> {
        match within("a delivery", self.0.receive(room)).await.unwrap() {
            Received::Deliveries(some) => some,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn settle(&self, held: &(Delivery, RocketTag), how: &Settlement) -> Result<(), SourceError> {
        within("a settlement", self.0.settler().settle(&held.0, &held.1, how)).await
    }

    /// Settles a delivery, and retries after transient errors as a consumer does.
    pub(crate) async fn insist(&self, held: &(Delivery, RocketTag), how: &Settlement) {
        let settled = async || match self.settle(held, how).await {
            Err(error) if error.kind() == SourceErrorKind::Transient => None,
            settled => Some(settled),
        };
        until("it is settled", settled).await.unwrap();
    }
}

pub(crate) fn executor() -> Executor {
    let second = Duration::from_secs(1);
    let policy = Policy::new().retry_delay(second).in_flight_delay(second).jitter(0).max_retries(2);
    Executor::builder(Arc::new(MemoryStore::new())).policy(Scene::Mq, policy).build().unwrap()
}

//! The source, which takes messages from topics.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{DelaySupport, Received, Settle, Source, SourceCapabilities, SourceError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::builder::KafkaSourceBuilder;
use crate::error::fatal;
use crate::member::Request;
use crate::options::Server;
use crate::output::KafkaOutput;
use crate::settler::{KafkaSettler, KafkaTag};

/// A source that reads a topic as one member of a consumer group. See the [crate documentation](crate) for an example.
pub struct KafkaSource {
    settler: Arc<KafkaSettler>,
    /// The sender of requests, or `None` once the source is closed.
    requests: Option<mpsc::UnboundedSender<Request>>,
}

impl KafkaSource {
    /// Connects with the default settings, as one member of this consumer group. The topic and the topic of its dead letters must
    /// exist. To create them, use [`declare`](KafkaSourceBuilder::declare).
    ///
    /// # Errors
    /// The same as [`KafkaSourceBuilder::connect`].
    ///
    /// # Cancellation
    /// Nothing changes.
    pub async fn connect(
        server: impl Into<Server>,
        topic: impl Into<Arc<str>>,
        group: impl Into<Arc<str>>,
    ) -> Result<Self, SourceError> {
        Self::builder(server, topic, group).connect().await
    }

    /// Returns a builder for a source that reads this topic as one member of this consumer group.
    pub fn builder(
        server: impl Into<Server>,
        topic: impl Into<Arc<str>>,
        group: impl Into<Arc<str>>,
    ) -> KafkaSourceBuilder {
        KafkaSourceBuilder::new(server.into(), topic.into(), group.into())
    }

    /// Returns the handle by which handlers add messages to the [transactions](KafkaSourceBuilder::transactions) of this source.
    pub fn output(&self) -> KafkaOutput {
        KafkaOutput::new(self.settler.assignment.clone())
    }

    /// Returns a future that ends with the first assignment of the group to this member. The assignment is empty if other members have
    /// all partitions. The future also ends if the member ends before that.
    ///
    /// # Cancellation
    /// Nothing changes.
    pub fn joined(&self) -> impl Future<Output = ()> + Send + use<> {
        let assignment = &self.settler.assignment;
        let (mut joined, mut left) = (assignment.joined.subscribe(), assignment.left.subscribe());
        async move {
            tokio::select! {
                _ = joined.wait_for(|joined| *joined) => {}
                _ = left.wait_for(|left| *left) => {}
            }
        }
    }

    pub(crate) fn new(settler: KafkaSettler, requests: mpsc::UnboundedSender<Request>) -> Self {
        Self { settler: Arc::new(settler), requests: Some(requests) }
    }
}

#[async_trait]
impl Source for KafkaSource {
    type Tag = KafkaTag;

    fn capabilities(&self) -> SourceCapabilities {
        let capabilities = SourceCapabilities::new(DelaySupport::Any);
        if self.settler.retry.is_none() { capabilities.keeps_order() } else { capabilities }
    }

    fn settler(&self) -> Arc<dyn Settle<KafkaTag>> {
        self.settler.clone()
    }

    async fn receive(&mut self, room: usize) -> Result<Received<KafkaTag>, SourceError> {
        let ended = || fatal("receiving", "the source is closed, or its thread has ended; connect again");
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or_else(ended)?;
        requests.send(Request { room, reply }).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    async fn close(&mut self) {
        self.requests = None;
        let mut left = self.settler.assignment.left.subscribe();
        self.settler.assignment.lock().is_closing = true;
        self.settler.assignment.changed.notify_one();
        // With unsettled deliveries, the member leaves its group after the last settlement.
        if self.settler.assignment.lock().is_done() {
            let _ = timeout(LEAVING, left.wait_for(|left| *left)).await;
        }
    }
}

/// The maximum time to leave the group. The consumer waits for 1 s.
const LEAVING: Duration = Duration::from_secs(3);

/// Shows nothing of the URL.
impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSource").field("group", &self.settler.group).finish_non_exhaustive()
    }
}

//! The producer that sends messages and copies, and its results.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rocketmq_client_rust::{ClientError, ClientResult, ClientRuntime, DefaultMQProducer, SendResult, SendStatus};
use rocketmq_model::common::message::message_queue::MessageQueue;
use rocketmq_model::common::message::message_single::Message;
use tokio::runtime::Handle;
use tokio::sync::RwLock;
use tokio::time::timeout;

use crate::client::{ClientSettings, client_config};
use crate::properties::Properties;
use crate::queue_choice::QueueChoice;
use crate::queue_position::QueuePosition;

/// A producer that runs on the client's runtime and can be called from any runtime.
pub(crate) struct MessageProducer {
    producer: RwLock<Option<DefaultMQProducer>>,
    handle: Handle,
}

/// The reason why a message is not confirmed.
#[derive(Debug)]
pub(crate) enum SendFailure {
    /// The broker has the message, but not flushed or replicated as configured.
    Incomplete(SendStatus),
    /// The send failed. The message may be stored, unless the error excludes it.
    Failed(ClientError),
    /// There was no answer in time. The message may be stored.
    Unanswered,
    /// The client has shut down.
    Ended,
}

/// Timeout of one attempt in ms, including the client's own retries.
pub(crate) const SEND_TIMEOUT_MS: u64 = 4_000;
/// Time limit of a [`send`](MessageProducer::send). It exceeds the timeout of the client, which does not cover all of its steps.
pub(crate) const SEND_LIMIT: Duration = Duration::from_millis(SEND_TIMEOUT_MS + 500);
/// The client's maximum body size in bytes. The broker has a lower limit.
pub(crate) const MAX_BODY: u32 = 128 * 1024 * 1024;

impl MessageProducer {
    /// Starts a producer. Must be called on the client's runtime.
    pub(crate) async fn start(
        runtime: &Arc<ClientRuntime>,
        client: &ClientSettings,
        group: &str,
    ) -> Result<Self, ClientError> {
        let mut builder = DefaultMQProducer::builder(runtime.clone()).client_config(client_config(client));
        if let Some(signer) = client.signer() {
            builder = builder.rpc_hook(signer);
        }
        let name_servers = client.name_servers.as_str();
        let mut producer =
            builder.name_server_addr(name_servers).producer_group(group).max_message_size(MAX_BODY).build();
        producer.start().await?;
        Ok(Self { producer: RwLock::new(Some(producer)), handle: Handle::current() })
    }

    /// Sends a message to any queue and returns when the broker has stored the message, within [`SEND_LIMIT`].
    ///
    /// # Cancellation
    /// The message may be sent before or after the cancellation.
    pub(crate) async fn send(self: &Arc<Self>, message: PreparedMessage) -> Result<(), SendFailure> {
        let own = self.clone();
        let sent = self.handle.spawn(async move {
            let producer = own.producer.read().await;
            let Some(producer) = producer.as_ref() else { return Err(SendFailure::Ended) };
            check_status(producer.send_with_timeout(message.encode(), SEND_TIMEOUT_MS).await).map(drop)
        });
        let answered = timeout(SEND_LIMIT, sent).await.map_err(|_| SendFailure::Unanswered)?;
        answered.unwrap_or(Err(SendFailure::Ended))
    }

    /// Sends a message to the chosen queue with a single request, so that an error describes one attempt. Returns the position of
    /// the message.
    ///
    /// # Cancellation
    /// The message may be sent before or after the cancellation.
    pub(crate) async fn send_once(
        self: &Arc<Self>,
        message: PreparedMessage,
        choice: QueueChoice,
        timeout: Duration,
    ) -> Result<Option<QueuePosition>, SendFailure> {
        let own = self.clone();
        let ms = u64::try_from(timeout.as_millis()).map_or(SEND_TIMEOUT_MS, |ms| ms.min(SEND_TIMEOUT_MS));
        let sent = self.handle.spawn(async move {
            let producer = own.producer.read().await;
            let Some(producer) = producer.as_ref() else { return Err(SendFailure::Ended) };
            let select = |queues: &[MessageQueue], message: &Message, to: &QueueChoice| to.select(queues, message);
            let sent = producer.send_with_selector_timeout(message.encode(), select, choice, ms).await;
            let result = check_status(sent)?;
            Ok(result.message_queue.and_then(|queue| QueuePosition::new(&queue, result.queue_offset)))
        });
        sent.await.unwrap_or(Err(SendFailure::Ended))
    }

    /// Sends a message from one of the client's blocking threads.
    pub(crate) fn send_blocking(self: &Arc<Self>, message: PreparedMessage) -> Result<(), SendFailure> {
        self.handle.block_on(self.send(message))
    }

    /// Returns the number of queues of a topic.
    pub(crate) async fn queue_count(&self, topic: &str) -> Result<usize, ClientError> {
        // The producer's own method needs exclusive access, which would wait for all pending sends.
        match self.producer.read().await.as_ref().and_then(DefaultMQProducer::default_mq_producer_impl) {
            Some(producer) => producer.fetch_publish_message_queues(&topic.into()).await.map(|queues| queues.len()),
            None => Err(ClientError::not_started()),
        }
    }

    /// Creates a topic on all brokers that have the topic `template`.
    pub(crate) async fn create_topic(&self, topic: &str, template: &str, queues: u32) -> Result<(), ClientError> {
        let queues = i32::try_from(queues).unwrap_or(i32::MAX);
        match self.producer.write().await.as_mut() {
            Some(producer) => producer.create_topic(template, topic, queues, Default::default()).await,
            None => Err(ClientError::not_started()),
        }
    }

    /// Waits for pending sends and shuts the producer down.
    pub(crate) async fn shut_down(&self) {
        let producer = self.producer.write().await.take();
        if let Some(mut producer) = producer {
            producer.shutdown().await;
        }
    }
}

/// Checks that the broker has stored the message as configured.
fn check_status(sent: ClientResult<Option<SendResult>>) -> Result<SendResult, SendFailure> {
    match sent {
        Ok(Some(result)) if result.send_status == SendStatus::SendOk => Ok(result),
        Ok(Some(result)) => Err(SendFailure::Incomplete(result.send_status)),
        Ok(None) => Err(SendFailure::Ended),
        Err(error) => Err(SendFailure::Failed(error)),
    }
}

impl fmt::Debug for MessageProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageProducer").finish_non_exhaustive()
    }
}

/// A message that is ready to be sent, with its topic.
#[derive(Clone)]
pub(crate) struct PreparedMessage {
    pub(crate) topic: String,
    pub(crate) properties: Properties,
    pub(crate) flag: i32,
    /// Delay level of the broker, or 0 for no delay.
    pub(crate) level: i32,
    pub(crate) body: Vec<u8>,
}

impl PreparedMessage {
    fn encode(self) -> Message {
        // The protocol has no empty bodies.
        let body = if self.body.is_empty() { vec![0] } else { self.body };
        let mut message = Message::builder().topic(self.topic).flag_bits(self.flag).body(body).build_unchecked();
        let properties = message.properties_mut().as_map_mut();
        properties.extend(self.properties.into_iter().map(|(name, value)| (name.into(), value.into())));
        if self.level > 0 {
            message.set_delay_time_level(self.level);
        }
        message
    }
}

/// Shows no payload.
impl fmt::Debug for PreparedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (topic, bytes) = (&self.topic, self.body.len());
        f.debug_struct("PreparedMessage").field("topic", topic).field("bytes", &bytes).finish_non_exhaustive()
    }
}

//! The session of a source: its connection, its subscription and its deliveries.
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotent_mq::SourceError;
use lapin::options::{BasicConsumeOptions, BasicNackOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, Consumer};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::ack_batcher::AckBatcher;
use crate::copies::CopyStore;
use crate::error::{answered, failure, unconnected};
use crate::frame_limit::FrameLimit;
use crate::settings::SourceSettings;

/// The state that a connection and the deliveries of one source share. The connection stays open until the last delivery
/// is settled, and closes without a cancellation of the subscription: after a cancellation, a single active consumer of
/// another process would get later messages before those that are still held here.
#[derive(Debug)]
pub(crate) struct ConsumerSession {
    pub(crate) settings: Arc<SourceSettings>,
    pub(crate) copies: Arc<CopyStore>,
    pub(crate) acks: AckBatcher,
    /// The channel of the subscription.
    pub(crate) channel: Channel,
    /// The limit for the headers of copies.
    pub(crate) limit: FrameLimit,
    /// Number of acknowledged deliveries.
    pub(crate) settled: AtomicU64,
    /// The client cancels a subscription with the drop of its last clone.
    subscription: Mutex<Option<Consumer>>,
    /// Always present until the drop.
    connection: Option<Connection>,
}

/// The options for giving a delivery back to its queue.
pub(crate) const REQUEUE: BasicNackOptions = BasicNackOptions { multiple: false, requeue: true };
/// Maximum time for closing a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn connect(settings: &SourceSettings) -> Result<Connection, SourceError> {
    let connection = settings.url.connect(&settings.connection_name()).await;
    connection.map_err(|error| unconnected(&settings.url, error))
}

/// Declares or checks the queue, and declares the queue of the dead letters. Returns the channel.
pub(crate) async fn declare_queues(settings: &SourceSettings, connection: &Connection) -> Result<Channel, SourceError> {
    settings.queue.check_support(connection).await?;
    let declare = async {
        let channel = connection.create_channel().await?;
        settings.queue.declare_with_dead(&channel).await?;
        Ok(channel)
    };
    let text = "declaring the queue or its dead letter queue failed: the cause shows what differs or is missing; use the \
                settings of the existing queue, or delete the queue";
    answered(declare).await.map_err(|error| failure(text, error))
}

impl ConsumerSession {
    pub(crate) fn new(
        copies: Arc<CopyStore>,
        settings: Arc<SourceSettings>,
        connection: Connection,
        channel: Channel,
    ) -> Self {
        let (acks, settled, subscription) = (AckBatcher::new(), AtomicU64::new(0), Mutex::default());
        let limit = FrameLimit::new(&connection);
        Self { settings, copies, acks, channel, limit, settled, subscription, connection: Some(connection) }
    }

    /// Subscribes to the queue.
    pub(crate) async fn subscribe(&self) -> lapin::Result<Consumer> {
        let (queue, tag) = (self.settings.queue.name.as_str().into(), self.settings.consumer_tag.as_str().into());
        let options = BasicConsumeOptions::default();
        let consumer = self.channel.basic_consume(queue, tag, options, FieldTable::default()).await?;
        *self.subscription.lock().unwrap_or_else(PoisonError::into_inner) = Some(consumer.clone());
        Ok(consumer)
    }

    /// Subscribes again over the same channel, after the broker has ended the subscription. Deliveries of the earlier
    /// subscription can still be settled.
    pub(crate) async fn subscribe_again(self: Arc<Self>) -> lapin::Result<Consumer> {
        // The broker ends the subscription to a queue that is deleted.
        self.settings.queue.declare_with_dead(&self.channel).await?;
        self.subscribe().await
    }
}

impl Drop for ConsumerSession {
    fn drop(&mut self) {
        let subscription = self.subscription.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(connection), Ok(runtime)) = (self.connection.take(), Handle::try_current()) else { return };
        runtime.spawn(async move {
            // If this fails, the connection is closed already, or closes with its drop.
            let _ = timeout(CLOSE_TIMEOUT, connection.close(200, "done".into())).await;
            drop(subscription);
        });
    }
}

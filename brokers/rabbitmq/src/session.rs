//! The session of a source: its connection, and the auxiliary queues for copies and dead letters.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use idempotent_mq::SourceError;
use lapin::options::BasicNackOptions;
use lapin::{BasicProperties, Channel, Connection};

use crate::ack_batcher::AckBatcher;
use crate::error::failure;
use crate::publish_connection::{PublishConnection, PublishFailure};
use crate::queue::REDECLARE_INTERVAL;
use crate::settings::SourceSettings;

/// The state that a connection and the deliveries of one source share.
#[derive(Debug)]
pub(crate) struct ConsumerSession {
    pub(crate) settings: Arc<SourceSettings>,
    pub(crate) publishing: PublishConnection,
    pub(crate) acks: AckBatcher,
    /// The channel of the subscription. The tags of its deliveries share this session, so the channel stays open until
    /// the last delivery is settled.
    pub(crate) channel: Channel,
    declared: Mutex<HashMap<AuxiliaryQueue, Instant>>,
}

/// A queue that the source declares in addition to the consumed queue.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum AuxiliaryQueue {
    DeadLetters,
    /// The retry queue with this delay in ms.
    Retry(u64),
}

/// Maximum number of copies and dead letters that are published at a time.
const MAX_PUBLISHING: usize = 8;
/// The options for giving a delivery back to its queue.
pub(crate) const REQUEUE: BasicNackOptions = BasicNackOptions { multiple: false, requeue: true };

pub(crate) async fn connect(settings: &SourceSettings) -> Result<Connection, SourceError> {
    let connection = settings.url.connect(&settings.connection_name()).await;
    connection.map_err(|error| failure("connecting to the broker failed; see the cause", error))
}

/// Declares or checks the queue, and declares the queue of the dead letters. Returns the channel.
pub(crate) async fn declare_queues(settings: &SourceSettings, connection: &Connection) -> Result<Channel, SourceError> {
    let declare = async {
        let channel = connection.create_channel().await?;
        settings.queue.declare(&channel).await?;
        // A quorum queue dead-letters messages by itself, also before the first settlement.
        settings.queue.declare_dead(&channel).await?;
        Ok(channel)
    };
    let text = "declaring the queue or its dead letter queue failed: the cause shows what differs or is missing; use the \
                settings of the existing queue, or delete the queue";
    declare.await.map_err(|error: lapin::Error| failure(text, error))
}

impl ConsumerSession {
    pub(crate) fn new(settings: Arc<SourceSettings>, connection: Connection, channel: Channel) -> Self {
        let publishing = PublishConnection::new(connection, MAX_PUBLISHING);
        Self { settings, publishing, acks: AckBatcher::new(), channel, declared: Mutex::default() }
    }

    /// Publishes to an auxiliary queue, which is declared first unless this happened recently.
    pub(crate) async fn store(
        &self,
        auxiliary: AuxiliaryQueue,
        properties: BasicProperties,
        body: &[u8],
    ) -> Result<(), PublishFailure> {
        let queue = &self.settings.queue;
        let name = match auxiliary {
            AuxiliaryQueue::DeadLetters => queue.dead_name(),
            AuxiliaryQueue::Retry(ms) => queue.retry_name(ms),
        };
        let declare = async |channel: &Channel| {
            if self.declared().get(&auxiliary).is_some_and(|at| at.elapsed() < REDECLARE_INTERVAL) {
                return Ok(());
            }
            match auxiliary {
                AuxiliaryQueue::DeadLetters => queue.declare_dead(channel).await?,
                AuxiliaryQueue::Retry(ms) => queue.declare_retry(channel, ms).await?,
            }
            self.declared().insert(auxiliary, Instant::now());
            Ok(())
        };
        let stored = self.publishing.publish(("", &name), properties, body, declare).await;
        if stored.is_err() {
            // The queue may have been deleted. The next attempt declares the queue again.
            self.declared().remove(&auxiliary);
        }
        stored
    }

    fn declared(&self) -> MutexGuard<'_, HashMap<AuxiliaryQueue, Instant>> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

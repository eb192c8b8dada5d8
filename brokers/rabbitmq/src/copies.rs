//! Storing of copies and dead letters, over a connection of their own.
//!
//! The broker blocks connections that publish while its memory or disk is short. On the connection of the subscription,
//! the block would also stop all acknowledgements.
use std::pin::pin;
use std::sync::Arc;

use lapin::{BasicProperties, Channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::{ANSWER, no_answer};
use crate::publish_connection::PublishFailure;
use crate::settings::SourceSettings;
use crate::shared_connection::SharedConnection;

/// The publisher of the copies and dead letters of a source.
#[derive(Debug)]
pub(crate) struct CopyStore {
    settings: Arc<SourceSettings>,
    pub(crate) connection: SharedConnection,
}

/// A copy that is being stored. Dropping the value does not stop the task.
pub(crate) type PendingCopy = JoinHandle<Result<(), PublishFailure>>;

/// A queue that the source declares in addition to the consumed queue.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum AuxiliaryQueue {
    DeadLetters,
    /// The retry queue with this delay in ms.
    Retry(u64),
}

/// Maximum number of copies and dead letters that are published at a time.
const MAX_PUBLISHING: usize = 8;

impl CopyStore {
    pub(crate) fn new(settings: Arc<SourceSettings>) -> Self {
        let name = format!("{}: copies", settings.connection_name());
        let connection = SharedConnection::new(settings.url.clone(), name, MAX_PUBLISHING);
        Self { settings, connection }
    }

    /// Starts a task that publishes to an auxiliary queue. The task ends when the broker has confirmed the message, or
    /// the connection fails.
    pub(crate) fn start(
        self: &Arc<Self>,
        auxiliary: AuxiliaryQueue,
        properties: BasicProperties,
        body: Vec<u8>,
    ) -> PendingCopy {
        let copies = self.clone();
        tokio::spawn(async move { copies.store(auxiliary, properties, &body).await })
    }

    /// Publishes to an auxiliary queue, which is declared first unless this happened recently.
    async fn store(
        &self,
        auxiliary: AuxiliaryQueue,
        properties: BasicProperties,
        body: &[u8],
    ) -> Result<(), PublishFailure> {
        let before = |error| PublishFailure::Broken { error, unsent: true };
        let connection = self.connection.get().await.map_err(before)?;
        let (queue, declared) = (&self.settings.queue, &self.connection.declared);
        let name = match auxiliary {
            AuxiliaryQueue::DeadLetters => queue.dead_name(),
            AuxiliaryQueue::Retry(ms) => queue.retry_name(ms),
        };
        let step = (name.clone(), String::new());
        let declare = async |channel: &Channel| {
            if declared.is_recent(&step) {
                return Ok(());
            }
            let mut declaring = pin!(async {
                match auxiliary {
                    AuxiliaryQueue::DeadLetters => queue.declare_dead(channel).await,
                    AuxiliaryQueue::Retry(ms) => queue.declare_retry(channel, ms).await,
                }
            });
            loop {
                match timeout(ANSWER, &mut declaring).await {
                    Ok(answer) => break answer?,
                    // An alarm stops declarations, too.
                    Err(_) if self.connection.alarm.reason().is_some() => {}
                    Err(_) => return Err(no_answer()),
                }
            }
            declared.note(step.clone());
            Ok(())
        };
        let stored = connection.publish(("", &name), properties, body, declare).await;
        if stored.is_err() {
            // The queue may have been deleted. The next attempt declares the queue again.
            declared.forget(&step);
        }
        stored
    }
}

//! The source, which reads messages of a queue.
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_mq::{DelaySupport, Delivery, Received, Settle, Source, SourceCapabilities, SourceError};
use sqlx::AssertSqlSafe;
use tokio::task::JoinHandle;

use crate::PgmqTag;
use crate::builder::PgmqSourceBuilder;
use crate::error::{failure, transient};
use crate::message::StoredMessage;
use crate::options::Server;
use crate::settler::PgmqSettler;
use crate::wakeups::Wakeups;

/// A source that reads a queue of PGMQ. Any number of sources share the messages. See the [crate documentation](crate) for an
/// example.
pub struct PgmqSource {
    settler: Arc<PgmqSettler>,
    wakeups: Wakeups,
    /// The running read, which continues if `receive` is dropped.
    reading: Option<JoinHandle<Result<Vec<StoredMessage>, SourceError>>>,
    /// Messages that were read and not returned yet.
    arrived: VecDeque<StoredMessage>,
}

const READING: &str = "reading messages";

impl PgmqSource {
    /// Connects with the default settings to this existing queue. To create the queue, use
    /// [`declare`](PgmqSourceBuilder::declare).
    ///
    /// # Errors
    /// The same as [`PgmqSourceBuilder::connect`].
    ///
    /// # Cancellation
    /// Nothing changes.
    pub async fn connect(server: impl Into<Server>, queue: impl Into<Arc<str>>) -> Result<Self, SourceError> {
        Self::builder(server, queue).connect().await
    }

    /// Returns a builder for a source that reads this queue.
    pub fn builder(server: impl Into<Server>, queue: impl Into<Arc<str>>) -> PgmqSourceBuilder {
        PgmqSourceBuilder::new(server.into(), queue.into())
    }

    pub(crate) fn new(settler: PgmqSettler, wakeups: Wakeups) -> Self {
        Self { settler: Arc::new(settler), wakeups, reading: None, arrived: VecDeque::new() }
    }

    /// Waits for the running read, and keeps its messages.
    async fn finish_reading(&mut self) -> Result<(), SourceError> {
        let Some(reading) = &mut self.reading else { return Ok(()) };
        let read = reading.await;
        self.reading = None;
        self.arrived.extend(read.map_err(|_| transient(READING, "the runtime is shutting down"))??);
        Ok(())
    }
}

/// Reads at most this number of messages.
async fn read(settler: Arc<PgmqSettler>, room: usize) -> Result<Vec<StoredMessage>, SourceError> {
    // PGMQ counts whole seconds.
    let visibility = settler.visibility;
    let seconds = visibility.as_secs() + u64::from(visibility.subsec_nanos() > 0);
    let read = sqlx::query(AssertSqlSafe(settler.statements.read.clone()))
        .bind(settler.queue.as_str())
        .bind(i32::try_from(seconds).unwrap_or(i32::MAX))
        .bind(i32::try_from(room).unwrap_or(i32::MAX));
    let rows = settler.connections.rows(read).await.map_err(|error| failure(READING, &error))?;
    rows.iter().map(|row| StoredMessage::read(&settler.queue, row)).collect()
}

#[async_trait]
impl Source for PgmqSource {
    type Tag = PgmqTag;

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::new(DelaySupport::Any).keep_alive(self.settler.visibility / 3).counts()
    }

    fn settler(&self) -> Arc<dyn Settle<PgmqTag>> {
        self.settler.clone()
    }

    async fn receive(&mut self, room: usize) -> Result<Received<PgmqTag>, SourceError> {
        loop {
            self.finish_reading().await?;
            if !self.arrived.is_empty() {
                self.wakeups.found();
                let taken = self.arrived.drain(..room.min(self.arrived.len()));
                return Ok(Received::Deliveries(taken.map(StoredMessage::into_delivery).collect()));
            }
            self.reading = Some(tokio::spawn(read(self.settler.clone(), room)));
            self.finish_reading().await?;
            if self.arrived.is_empty() {
                self.wakeups.wait().await;
            }
        }
    }

    async fn close(&mut self) {
        if let Err(error) = self.finish_reading().await {
            tracing::debug!(target: "idempotent", %error, "pgmq: the last read failed");
        }
        for message in self.arrived.drain(..) {
            // A message that cannot be returned is redelivered after its visibility timeout.
            if let Err(error) = self.settler.give_back(&message.tag).await {
                tracing::debug!(target: "idempotent", %error, "pgmq: a message is redelivered later");
            }
        }
    }
}

impl StoredMessage {
    fn into_delivery(self) -> (Delivery, PgmqTag) {
        (self.delivery, self.tag)
    }
}

/// Shows nothing of the URL.
impl fmt::Debug for PgmqSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgmqSource")
            .field("queue", &self.settler.queue)
            .field("visibility_timeout", &self.settler.visibility)
            .field("listens", &self.wakeups.listens())
            .finish_non_exhaustive()
    }
}

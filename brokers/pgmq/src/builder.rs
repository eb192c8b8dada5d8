//! Builder of a [`PgmqSource`].
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idempotent_mq::SourceError;

use crate::PgmqSource;
use crate::acks::AckQueue;
use crate::connections::Connections;
use crate::error::{failure, fatal};
use crate::options::Server;
use crate::pooler;
use crate::queue_name::QueueName;
use crate::settler::PgmqSettler;
use crate::setup::{check, create};
use crate::statements::Statements;
use crate::wakeups::Wakeups;

/// A builder for a [`PgmqSource`].
#[must_use]
pub struct PgmqSourceBuilder {
    server: Server,
    queue: Arc<str>,
    dead: Option<String>,
    visibility: Duration,
    poll: Duration,
    declares: bool,
    archives: bool,
}

impl PgmqSourceBuilder {
    pub(crate) fn new(server: Server, queue: Arc<str>) -> Self {
        Self {
            server,
            queue,
            dead: None,
            visibility: Duration::from_secs(30),
            poll: Duration::from_millis(500),
            declares: false,
            archives: false,
        }
    }

    /// Creates the queue and the queue of its dead letters by `pgmq.create`. Existing ones stay unchanged.
    ///
    /// # Default
    /// Both must exist
    pub fn declare(mut self) -> Self {
        self.declares = true;
        self
    }

    /// Sets the time after which PGMQ delivers an unsettled message again, from 1 s to 12 h. The source extends this time while a
    /// message is held, so it determines how soon the messages of a dead process are taken over. PGMQ counts whole seconds, so the
    /// first period is rounded up.
    ///
    /// # Default
    /// 30 s
    pub fn visibility_timeout(mut self, time: Duration) -> Self {
        self.visibility = time;
        self
    }

    /// Sets the longest pause between two looks at an empty queue, from 10 ms to 1 min. The pauses begin with 10 ms and double. If
    /// PGMQ notifies of new messages (`pgmq.enable_notify_insert`), a notification ends a pause. Delayed and retried messages are
    /// due without a notification.
    ///
    /// # Default
    /// 500 ms
    pub fn poll(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// Sets the name of the queue of the dead letters.
    ///
    /// # Default
    /// `QUEUE_dead`
    pub fn dead_letters(mut self, queue: impl Into<String>) -> Self {
        self.dead = Some(queue.into());
        self
    }

    /// Archives acknowledged messages in the table `pgmq.a_QUEUE`, which grows until you remove rows.
    ///
    /// # Default
    /// Acknowledged messages are deleted
    pub fn archive(mut self) -> Self {
        self.archives = true;
        self
    }

    /// Connects, and creates or checks the queues.
    ///
    /// # Errors
    /// - `Fatal`: a setting is invalid, PGMQ or a queue is missing, PGMQ is older than 1.5, the server is read-only, privileges are
    ///   missing, the server rejects the user, or a pooler loses prepared statements or refuses `options` of the URL.
    /// - `Transient`: the server cannot be reached or does not answer.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    ///
    /// # Cancellation
    /// Some of the queues may have been created.
    pub async fn connect(self) -> Result<PgmqSource, SourceError> {
        let queue = QueueName::new("queue", &self.queue)?;
        let dead = self.dead.clone().unwrap_or_else(|| format!("{queue}_dead"));
        let dead = QueueName::new("dead_letters", &dead)?;
        self.check_settings(&queue, &dead)?;
        let connections = Arc::new(Connections::new(&self.server)?);
        let opening = |error| failure(&format!("opening the queue `{queue}`"), &error);
        let may_be_lent = pooler::check(&connections).await.map_err(opening)?;
        if self.declares {
            create(&connections, &queue).await?;
            create(&connections, &dead).await?;
        }
        let notifies = check(&connections, &queue).await?;
        check(&connections, &dead).await?;
        let mut wakeups = Wakeups::new(self.poll);
        // A pooler would leave the channel to other clients of the server connection.
        if notifies && !may_be_lent {
            wakeups.listen(connections.options.clone(), queue.channel());
        }
        let statements = Statements::new(&queue, &dead, self.archives);
        let acks = AckQueue::start(connections.clone(), statements.ack.clone());
        let settler = PgmqSettler { connections, statements, acks, queue, dead, visibility: self.visibility };
        Ok(PgmqSource::new(settler, wakeups))
    }

    fn check_settings(&self, queue: &QueueName, dead: &QueueName) -> Result<(), SourceError> {
        let doing = "checking the settings";
        if queue.is_same_table(dead) {
            return Err(fatal(doing, "`dead_letters` is the queue itself; name another queue"));
        }
        let within = |time: Duration, shortest, longest| (shortest..=longest).contains(&time);
        if !within(self.visibility, Duration::from_secs(1), Duration::from_secs(12 * 3600)) {
            let text = format!("`visibility_timeout` is {:?}; set it to 1 s to 12 h", self.visibility);
            return Err(fatal(doing, &text));
        }
        if !within(self.poll, Duration::from_millis(10), Duration::from_secs(60)) {
            return Err(fatal(doing, &format!("`poll` is {:?}; set it to 10 ms to 1 min", self.poll)));
        }
        Ok(())
    }
}

/// Shows nothing of the URL.
impl fmt::Debug for PgmqSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgmqSourceBuilder")
            .field("queue", &self.queue)
            .field("visibility_timeout", &self.visibility)
            .finish_non_exhaustive()
    }
}

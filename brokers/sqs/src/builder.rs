//! Builder of an [`SqsSource`].
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use idempotent_mq::SourceError;

use crate::SqsSource;
use crate::acks::AckQueue;
use crate::address::QueueAddress;
use crate::error::fatal;
use crate::message::whole_seconds;
use crate::polls::PollSettings;
use crate::queue::Queue;
use crate::retry_marks::RetryMarks;
use crate::settler::SqsSettler;
use crate::setup::{Purpose, QueueState, open_checked};

/// A builder for an [`SqsSource`].
#[must_use]
pub struct SqsSourceBuilder {
    client: Client,
    queue: String,
    dead: Option<String>,
    visibility: Duration,
    poll: Duration,
    least_receives: u32,
    declares: bool,
}

/// The number of receives that a consumer may need for one message, by its default limits.
const RECEIVES: u32 = 100;
const SETTINGS: &str = "checking the settings";

impl SqsSourceBuilder {
    pub(crate) fn new(client: Client, queue: String) -> Self {
        Self {
            client,
            queue,
            dead: None,
            visibility: Duration::from_secs(30),
            poll: Duration::from_secs(20),
            least_receives: RECEIVES,
            declares: false,
        }
    }

    /// Creates the queue and the queue of its dead letters, which keeps them for 14 days. Existing queues stay unchanged. After a
    /// creation, [`connect`](Self::connect) waits for 1 s, because SQS needs this time until a new queue can be used.
    ///
    /// # Default
    /// Both must exist
    pub fn declare(mut self) -> Self {
        self.declares = true;
        self
    }

    /// Sets the time after which SQS delivers an unsettled message again, from 1 s to 12 h. The source extends this time while a
    /// message is held, so it determines how soon the messages of a dead process are taken over. SQS counts whole seconds, so the
    /// time is rounded up. The setting of the queue is not used.
    ///
    /// # Default
    /// 30 s
    pub fn visibility_timeout(mut self, time: Duration) -> Self {
        self.visibility = time;
        self
    }

    /// Sets the longest wait of one request for messages, from 1 s to 20 s, rounded up to whole seconds. A message that arrives
    /// ends the wait. A shorter wait costs more requests.
    ///
    /// # Default
    /// 20 s
    pub fn long_poll(mut self, wait: Duration) -> Self {
        self.poll = wait;
        self
    }

    /// Sets the name or the URL of the queue of the dead letters. A FIFO queue needs a FIFO queue.
    ///
    /// # Default
    /// `QUEUE-dead`, or `QUEUE-dead.fifo` for a FIFO queue
    pub fn dead_letters(mut self, queue: impl Into<String>) -> Self {
        self.dead = Some(queue.into());
        self
    }

    /// Accepts a queue whose `RedrivePolicy` has a `maxReceiveCount` of at least this number.
    ///
    /// Each retry, deferral and return is a receive. At the number of the policy, SQS itself moves the message to the dead-letter
    /// queue of the policy, without a reason and without the data of the consumer.
    ///
    /// # Default
    /// 100
    pub fn accept_max_receives(mut self, least: u32) -> Self {
        self.least_receives = least;
        self
    }

    /// Opens the queues, creates missing ones on request, and checks them.
    ///
    /// # Errors
    /// - `Fatal`: a setting is invalid, a queue is missing, its redrive policy gives up too early, or SQS refuses the
    ///   credentials or a request.
    /// - `Transient`: SQS cannot be reached, or the credentials cannot be loaded or have expired.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    ///
    /// # Cancellation
    /// Some of the queues may have been created.
    pub async fn connect(self) -> Result<SqsSource, SourceError> {
        let address = QueueAddress::parse("queue", &self.queue)?;
        let dead = match &self.dead {
            Some(dead) => QueueAddress::parse("dead_letters", dead)?,
            None => address.dead(),
        };
        self.check_settings(&address, &dead)?;
        let creates = |purpose| self.declares.then_some(purpose);
        let (opened, opened_dead) = tokio::join!(
            open_checked(&self.client, &address, creates(Purpose::Messages)),
            open_checked(&self.client, &dead, creates(Purpose::DeadLetters)),
        );
        let ((queue, state), (dead, dead_state)) = (opened?, opened_dead?);
        let max_receives = self.check_redrive(&queue, &state)?;
        if let Some((most, arn)) = dead_state.redrive {
            let remedy =
                format!("its RedrivePolicy moves dead letters to `{arn}` after {most} reads; remove the policy");
            return Err(fatal(&format!("opening the queue `{}`", dead.name), &remedy));
        }
        let visibility = Duration::from_secs(whole_seconds(self.visibility));
        let polls = PollSettings {
            queue: queue.clone(),
            wait: whole_seconds(self.poll),
            visibility: i32::try_from(visibility.as_secs()).unwrap_or(i32::MAX),
        };
        let settler = SqsSettler {
            acks: AckQueue::start(queue.clone()),
            queue,
            dead,
            marks: Arc::new(RetryMarks::default()),
            visibility,
        };
        Ok(SqsSource::new(settler, polls, max_receives))
    }

    /// Returns the number of receives of the redrive policy if it is small.
    ///
    /// # Errors
    /// The number is too small.
    fn check_redrive(&self, queue: &Queue, state: &QueueState) -> Result<Option<u32>, SourceError> {
        let Some((most, arn)) = &state.redrive else { return Ok(None) };
        if *most < self.least_receives {
            let remedy = format!(
                "its RedrivePolicy moves a message to `{arn}` after {most} receives, and each retry, deferral and return is a \
                 receive; raise `maxReceiveCount` to at least {RECEIVES}, remove the policy, or call \
                 `accept_max_receives({most})` on the builder"
            );
            return Err(fatal(&format!("opening the queue `{}`", queue.name), &remedy));
        }
        Ok(Some(*most).filter(|most| *most < RECEIVES))
    }

    fn check_settings(&self, queue: &QueueAddress, dead: &QueueAddress) -> Result<(), SourceError> {
        if queue.name == dead.name && (queue.url == dead.url || queue.url.is_none() || dead.url.is_none()) {
            return Err(fatal(SETTINGS, "`dead_letters` is the queue itself; name another queue"));
        }
        if queue.is_fifo() != dead.is_fifo() {
            let text = format!(
                "`dead_letters` is `{}`; for `{}`, use {}",
                dead.name,
                queue.name,
                match queue.is_fifo() {
                    true => "a FIFO queue, whose name ends with `.fifo`",
                    false => "a standard queue",
                }
            );
            return Err(fatal(SETTINGS, &text));
        }
        let within = |time: Duration, longest| (1..=longest).contains(&whole_seconds(time));
        if !within(self.visibility, 12 * 3600) {
            let text = format!("`visibility_timeout` is {:?}; set it to 1 s to 12 h", self.visibility);
            return Err(fatal(SETTINGS, &text));
        }
        if !within(self.poll, 20) {
            return Err(fatal(SETTINGS, &format!("`long_poll` is {:?}; set it to 1 s to 20 s", self.poll)));
        }
        Ok(())
    }
}

impl fmt::Debug for SqsSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsSourceBuilder")
            .field("queue", &self.queue)
            .field("visibility_timeout", &self.visibility)
            .finish_non_exhaustive()
    }
}

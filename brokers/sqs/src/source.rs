//! The source, which receives messages of a queue.
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::Message;
use idempotent_core::Redelivery;
use idempotent_mq::{DelaySupport, MessagePlace, Received, Settle, Source, SourceCapabilities, SourceError};

use crate::SqsTag;
use crate::builder::SqsSourceBuilder;
use crate::message::delivery;
use crate::polls::{Poll, PollSettings, give_back};
use crate::settler::SqsSettler;

/// A source that receives messages of a queue of SQS by long polls. Any number of sources share the messages. See the
/// [crate documentation](crate) for an example.
pub struct SqsSource {
    settler: Arc<SqsSettler>,
    polls: Arc<PollSettings>,
    /// The running poll, which continues if `receive` is dropped.
    poll: Option<Poll>,
    /// Messages that were received and not returned yet.
    arrived: VecDeque<Message>,
    /// The number of receives after which the queue moves a message to its own dead-letter queue, if it is small.
    max_receives: Option<u32>,
}

/// The longest delay in one piece. SQS limits the time since the receive to 12 h, which includes the time of the handler.
const LONGEST_DELAY: Duration = Duration::from_secs(11 * 3600);

impl SqsSource {
    /// Opens this existing queue with the default settings. To create the queue, use [`declare`](SqsSourceBuilder::declare).
    ///
    /// # Errors
    /// The same as [`SqsSourceBuilder::connect`].
    ///
    /// # Cancellation
    /// Nothing changes.
    pub async fn connect(client: Client, queue: impl Into<String>) -> Result<Self, SourceError> {
        Self::builder(client, queue).connect().await
    }

    /// Returns a builder for a source that receives messages of this queue: its name, or its URL.
    pub fn builder(client: Client, queue: impl Into<String>) -> SqsSourceBuilder {
        SqsSourceBuilder::new(client, queue.into())
    }

    pub(crate) fn new(settler: SqsSettler, polls: PollSettings, max_receives: Option<u32>) -> Self {
        Self { settler: Arc::new(settler), polls: Arc::new(polls), poll: None, arrived: VecDeque::new(), max_receives }
    }

    /// Waits for the running poll, and keeps its messages.
    async fn finish_poll(&mut self) -> Result<(), SourceError> {
        let Some(poll) = &mut self.poll else { return Ok(()) };
        let messages = poll.messages().await;
        self.poll = None;
        self.arrived.extend(messages?);
        Ok(())
    }
}

#[async_trait]
impl Source for SqsSource {
    type Tag = SqsTag;

    fn capabilities(&self) -> SourceCapabilities {
        let capabilities = SourceCapabilities::new(DelaySupport::UpTo(LONGEST_DELAY));
        let mut capabilities = capabilities.keep_alive(self.settler.visibility / 3).counts();
        if self.settler.queue.is_fifo() {
            capabilities = capabilities.keeps_order();
        }
        match self.max_receives {
            Some(most) => {
                let redeliveries = (1..most).map(|_| self.settler.visibility);
                capabilities.redelivery(Redelivery::after(redeliveries))
            }
            None => capabilities,
        }
    }

    fn settler(&self) -> Arc<dyn Settle<SqsTag>> {
        self.settler.clone()
    }

    async fn receive(&mut self, room: usize) -> Result<Received<SqsTag>, SourceError> {
        self.finish_poll().await?;
        if self.arrived.is_empty() {
            self.poll = Some(Poll::start(self.polls.clone(), room));
            self.finish_poll().await?;
        }
        let taken = self.arrived.drain(..room.min(self.arrived.len()));
        let deliveries = taken.map(|message| {
            let (mut delivery, tag) = delivery(&self.settler.queue, message, MessagePlace::Queue);
            if let Some(mark) = self.settler.marks.get(&tag.message) {
                delivery.delivered = delivery.delivered.map(|count| count.saturating_sub(mark.settled).max(1));
                if let Some((attempt, first_at)) = mark.retried {
                    (delivery.attempt, delivery.first_at) = (Some(attempt), Some(first_at));
                }
            }
            (delivery, tag)
        });
        Ok(Received::Deliveries(deliveries.collect()))
    }

    async fn close(&mut self) {
        if let Some(poll) = self.poll.take() {
            self.arrived.extend(poll.close());
        }
        let arrived = std::mem::take(&mut self.arrived);
        give_back(&self.settler.queue, arrived.iter().filter_map(Message::receipt_handle)).await;
    }
}

impl fmt::Debug for SqsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsSource")
            .field("queue", &self.settler.queue.name)
            .field("visibility_timeout", &self.settler.visibility)
            .finish_non_exhaustive()
    }
}

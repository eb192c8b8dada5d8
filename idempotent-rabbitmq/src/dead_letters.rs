//! Inspection and redrive of the dead letters of a queue.
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Clock, SystemClock};
use idempotent_mq::{DeadLetter, DeadLetters, Delivery, Position, SourceError, SourceErrorKind};
use lapin::message::BasicGetMessage;
use lapin::options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Connection};
use tokio::time::timeout;

use crate::broker_address::BrokerAddress;
use crate::confirmed_publisher::{ConfirmedPublisher, PublishFailure};
use crate::error::{failed, is_final};
use crate::retry_headers::{ExpirySource, MessageState, letter, properties_back};
use crate::session::GIVE_BACK;
use crate::{Queue, SettingError};

/// The dead letters of a queue, in `QUEUE.dead`, for [`Redrive`](idempotent_mq::Redrive). Each dead letter is
/// published to the queue, and removed only after the broker has confirmed and not returned the copy.
///
/// ```no_run
/// use idempotent_mq::Redrive;
/// use idempotent_rabbitmq::RabbitDeadLetters;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut letters = RabbitDeadLetters::new("amqp://guest:guest@localhost/%2f", "orders")?;
/// let redriven = Redrive::new().limit(10).run(&mut letters).await;
/// println!("{} put back", redriven.put_back);
/// redriven.failed.map_or(Ok(()), |failed| Err(failed.into()))
/// # }
/// ```
pub struct RabbitDeadLetters {
    address: BrokerAddress,
    queue: Queue,
    /// The connection, opened on first use, and closed after an error.
    open: Option<OpenQueue>,
}

struct OpenQueue {
    /// Closing this channel returns all dead letters that were taken and not put back.
    channel: Channel,
    publishing: ConfirmedPublisher,
    taken: Option<BasicGetMessage>,
}

/// The time after which an unanswered publication counts as unconfirmed.
const CONFIRM: Duration = Duration::from_secs(10);
/// The time limit for returning the last dead letter. Otherwise, the broker returns it when the connection ends.
const LEAVE: Duration = Duration::from_secs(1);

impl RabbitDeadLetters {
    /// Creates a reader of the dead letters of this queue. The URL has the form of
    /// [`RabbitSource::builder`](crate::RabbitSource::builder).
    ///
    /// # Errors
    /// The URL is invalid, or the name is too long.
    pub fn new(url: &str, queue: impl Into<String>) -> Result<Self, SettingError> {
        let queue = Queue::existing(queue);
        queue.check()?;
        Ok(Self { address: BrokerAddress::parse(url)?, queue, open: None })
    }

    async fn open(&mut self) -> Result<&mut OpenQueue, SourceError> {
        if self.open.is_none() {
            let connect = async {
                let connection: Connection = self.address.connect("idempotent: dead letters").await?;
                let channel = connection.create_channel().await?;
                Ok(OpenQueue { channel, publishing: ConfirmedPublisher::new(connection, 1), taken: None })
            };
            let opened = connect.await.map_err(|error| failed("cannot connect to the broker", error))?;
            return Ok(self.open.insert(opened));
        }
        // The previous statement ensures that the connection is open.
        self.open.as_mut().ok_or_else(nothing_taken)
    }

    /// Closes the connection, which returns the dead letters that were taken.
    fn give_up(&mut self, error: lapin::Error) -> SourceError {
        self.open = None;
        failed("cannot read the dead letters", error)
    }
}

#[async_trait]
impl DeadLetters for RabbitDeadLetters {
    async fn count(&mut self) -> Result<u64, SourceError> {
        let dead = ShortString::from(self.queue.dead());
        let channel = self.open().await?.channel.clone();
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let there = channel.queue_declare(dead, options, FieldTable::default()).await;
        there.map(|queue| queue.message_count().into()).map_err(|error| self.give_up(error))
    }

    async fn next(&mut self) -> Result<Option<(Delivery, Option<DeadLetter>)>, SourceError> {
        let dead = ShortString::from(self.queue.dead());
        let open = self.open().await?;
        open.taken = match open.channel.basic_get(dead, BasicGetOptions::default()).await {
            Ok(taken) => taken,
            Err(error) => return Err(self.give_up(error)),
        };
        let Some(taken) = &open.taken else { return Ok(None) };
        let (properties, body, redelivered) = (taken.properties.clone(), taken.data.clone(), taken.redelivered);
        let left = letter(&properties, &self.queue.name);
        let marked = MessageState::read(properties, &self.queue, &ExpirySource::default(), SystemClock::new().wall());
        let mut delivery = marked.delivery(Position::of(self.queue.dead()), body);
        delivery.redelivered = redelivered;
        Ok(Some((delivery, left)))
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        let open = self.open.as_mut().ok_or_else(nothing_taken)?;
        let taken = open.taken.take().ok_or_else(nothing_taken)?;
        let properties = properties_back(&taken.properties, &self.queue.name);
        let publish = open.publishing.publish(("", &self.queue.name), properties, &taken.data, async |_| Ok(()));
        let failed = match timeout(CONFIRM, publish).await {
            Ok(Ok(())) => match taken.acker.ack(BasicAckOptions::default()).await {
                Ok(true) => return Ok(true),
                Ok(false) => transient("connection lost after the redrive: the message is in its queue and still in the dead-letter queue"),
                Err(error) => transient("acknowledgement failed after the redrive: the message is in its queue and perhaps still in the dead-letter queue").with_cause(error),
            },
            Ok(Err(unsent)) => why(unsent),
            Err(_) => transient("no confirm within 10 s: the message is still in the dead-letter queue and perhaps in its queue"),
        };
        // If the negative acknowledgement fails, the dead letter returns when the connection closes.
        let _ = timeout(LEAVE, taken.acker.nack(GIVE_BACK)).await;
        self.open = None;
        Err(failed)
    }
}

fn why(unsent: PublishFailure) -> SourceError {
    match unsent {
        PublishFailure::Unroutable => SourceError::new(
            SourceErrorKind::Fatal,
            "the queue for redriven messages does not exist: declare it, or name another queue",
        ),
        PublishFailure::Nacked => transient("the broker rejected the message: the queue may be full; redrive it later"),
        PublishFailure::Broken { error, .. } if is_final(&error) => SourceError::new(
            SourceErrorKind::Fatal,
            "cannot publish to the queue; the cause names the missing right or queue",
        )
        .with_cause(error),
        PublishFailure::Broken { error, before } => {
            let text = if before {
                "the message was not sent"
            } else {
                "the message may have been sent, and is still in the dead-letter queue"
            };
            transient(text).with_cause(error)
        }
    }
}

fn transient(text: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Transient, text)
}

fn nothing_taken() -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, "no dead letter to redrive: call `next` first")
}

/// Prints no part of the URL.
impl fmt::Debug for RabbitDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (broker, queue) = (&self.address, &self.queue.name);
        f.debug_struct("RabbitDeadLetters").field("broker", broker).field("queue", queue).finish_non_exhaustive()
    }
}

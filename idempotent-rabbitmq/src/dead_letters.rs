//! The dead letters of a queue, to be looked at and put back.
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

use crate::address::Address;
use crate::confirm::{Confirming, Unsent};
use crate::error::{failed, is_final};
use crate::marks::{End, Marked, letter, properties_back};
use crate::session::GIVE_BACK;
use crate::{Queue, SettingError};

/// The dead letters of a queue, `QUEUE.dead`, for [`Redrive`](idempotent_mq::Redrive): one at a time, each published to the
/// queue, confirmed and not returned, and only then taken away.
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
    address: Address,
    queue: Queue,
    /// Made when it is first needed, and given up when something fails.
    open: Option<Open>,
}

struct Open {
    /// What was taken by it and not put back is in its queue again once it is closed.
    channel: Channel,
    publishing: Confirming,
    taken: Option<BasicGetMessage>,
}

/// A broker that has not confirmed by then says nothing any more, or takes nothing in.
const CONFIRM: Duration = Duration::from_secs(10);
/// For telling it that a letter stays where it is. Otherwise it finds out by the connection's end.
const LEAVE: Duration = Duration::from_secs(1);

impl RabbitDeadLetters {
    /// Those of this queue, whoever declares it. The URL is that of
    /// [`RabbitSource::builder`](crate::RabbitSource::builder).
    ///
    /// # Errors
    /// A URL that cannot be read, a name that is too long.
    pub fn new(url: &str, queue: impl Into<String>) -> Result<Self, SettingError> {
        let queue = Queue::existing(queue);
        queue.check()?;
        Ok(Self { address: Address::parse(url)?, queue, open: None })
    }

    async fn open(&mut self) -> Result<&mut Open, SourceError> {
        if self.open.is_none() {
            let connect = async {
                let connection: Connection = self.address.connect("idempotent: dead letters").await?;
                let channel = connection.create_channel().await?;
                Ok(Open { channel, publishing: Confirming::new(connection, 1), taken: None })
            };
            let opened = connect.await.map_err(|error| failed("no connection", error))?;
            return Ok(self.open.insert(opened));
        }
        // Just looked.
        self.open.as_mut().ok_or_else(nothing_taken)
    }

    /// What was taken goes back with the connection.
    fn give_up(&mut self, error: lapin::Error) -> SourceError {
        self.open = None;
        failed("the dead letters cannot be read", error)
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
        let marked = Marked::read(properties, &self.queue, &End::default(), SystemClock::new().wall());
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
                Ok(false) => transient("the connection is gone: the letter is in its queue, and lies here still"),
                Err(error) => transient("the letter is in its queue, and lies here still, perhaps").with_cause(error),
            },
            Ok(Err(unsent)) => why(unsent),
            Err(_) => transient("no confirm within 10 s: the letter lies here still, and perhaps in its queue"),
        };
        // Or it goes back with the connection.
        let _ = timeout(LEAVE, taken.acker.nack(GIVE_BACK)).await;
        self.open = None;
        Err(failed)
    }
}

fn why(unsent: Unsent) -> SourceError {
    match unsent {
        Unsent::Unroutable => SourceError::new(
            SourceErrorKind::Fatal,
            "there is no such queue to put dead letters back into: declare it, or name another",
        ),
        Unsent::Nacked => transient("the broker could not keep it: perhaps the queue is full"),
        Unsent::Broken { error, .. } if is_final(&error) => {
            SourceError::new(SourceErrorKind::Fatal, "the queue cannot be written; the cause says what is missing")
                .with_cause(error)
        }
        Unsent::Broken { error, before } => {
            let text = if before { "it was not sent" } else { "perhaps it was sent: it lies here still" };
            transient(text).with_cause(error)
        }
    }
}

fn transient(text: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Transient, text)
}

fn nothing_taken() -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, "`next` brought no letter that could be put back")
}

/// Nothing of the URL's password.
impl fmt::Debug for RabbitDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (broker, queue) = (&self.address, &self.queue.name);
        f.debug_struct("RabbitDeadLetters").field("broker", broker).field("queue", queue).finish_non_exhaustive()
    }
}

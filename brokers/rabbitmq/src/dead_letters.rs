//! Listing, redriving and removing the dead letters of a queue.
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Clock, SystemClock};
use idempotent_mq::{ContentIds, LetterBox, Position, SourceError, SourceErrorKind, StoredLetter};
use lapin::message::BasicGetMessage;
use lapin::options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Acker, Channel, Connection};
use tokio::time::timeout;

use crate::alarm::Alarm;
use crate::carrier::{ExpirySettings, RetryHeaders, decode_letter, redriven_properties};
use crate::error::{failure, is_final, is_too_large, transient, unconnected};
use crate::options::{BrokerUrl, Server};
use crate::publish_connection::{PublishConnection, PublishFailure};
use crate::session::REQUEUE;
use crate::{Queue, SettingError};

/// The dead letters of a queue in `QUEUE.dead`, for [`Redrive`](idempotent_mq::Redrive). Each letter is published to
/// the queue, and acknowledged after the broker has confirmed that the queue has stored the message.
///
/// The broker hides the letters that were read from all other readers, and does not count them, until
/// [`next`](idempotent_mq::DeadLetters::next) has returned `None`, [`close`](idempotent_mq::DeadLetters::close) has ended, or `self` is dropped. End a listing
/// in one of these ways before a redrive: it would otherwise find no letter.
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
    url: BrokerUrl,
    queue: Queue,
    /// The queue into which letters are put back.
    to: String,
    /// The connection, which opens on first use and is dropped after an error.
    open: Option<OpenConnection>,
    /// The ids of the letters that the connection has read.
    ids: ContentIds,
    listed: Option<BasicGetMessage>,
}

struct OpenConnection {
    /// The channel that reads letters. When the channel closes, the letters that were not put back return to their
    /// queue.
    channel: Channel,
    publishing: PublishConnection,
    alarm: Alarm,
    /// The earlier letters that were not put back, in their order.
    left: Vec<Acker>,
}

/// Maximum time for a confirm.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for returning a letter to its queue. After this time, the closed connection returns the letter.
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);

impl RabbitDeadLetters {
    /// Creates a handle to the dead letters of this queue, which must exist. The URL has the same form as for
    /// [`RabbitSource::builder`](crate::RabbitSource::builder).
    ///
    /// # Errors
    /// The URL or the name is invalid.
    pub fn new(server: impl Into<Server>, queue: impl Into<String>) -> Result<Self, SettingError> {
        let queue = Queue::existing(queue);
        queue.check()?;
        let to = queue.name.clone();
        Ok(Self { url: BrokerUrl::of(server.into())?, queue, to, open: None, ids: ContentIds::default(), listed: None })
    }

    /// Puts all letters back to this queue, which must exist.
    ///
    /// # Default
    /// The queue of this handle
    ///
    /// # Errors
    /// The name is invalid.
    pub fn putting_back_to(mut self, queue: impl Into<String>) -> Result<Self, SettingError> {
        let to = Queue::existing(queue);
        to.check()?;
        self.to = to.name;
        Ok(self)
    }

    async fn open(&mut self) -> Result<&mut OpenConnection, SourceError> {
        if self.open.is_none() {
            let connect = async {
                let connection: Connection = self.url.connect("idempotent: dead letters").await?;
                let channel = connection.create_channel().await?;
                let alarm = Alarm::default();
                alarm.follow(&connection, &self.url);
                Ok(OpenConnection {
                    channel,
                    alarm,
                    publishing: PublishConnection::new(connection, 1),
                    left: Vec::new(),
                })
            };
            let opened = connect.await.map_err(|error| unconnected(&self.url, error))?;
            self.ids = ContentIds::default();
            return Ok(self.open.insert(opened));
        }
        // The branch above returns if there is no connection.
        self.open.as_mut().ok_or_else(|| transient("reading a dead letter: the connection is closed"))
    }

    /// Drops the connection, which returns a taken letter to its queue.
    fn broken(&mut self, error: lapin::Error) -> SourceError {
        self.open = None;
        let text = format!(
            "reading the dead letters of `{}` failed; see the cause, and if the client cannot read a letter, remove it with \
             another client, as the handbook describes",
            self.queue.name
        );
        failure(&text, error)
    }
}

#[async_trait]
impl LetterBox for RabbitDeadLetters {
    type Letter = BasicGetMessage;

    fn listed(&mut self) -> &mut Option<BasicGetMessage> {
        &mut self.listed
    }

    async fn number(&mut self) -> Result<u64, SourceError> {
        let dead = ShortString::from(self.queue.dead_name());
        let channel = self.open().await?.channel.clone();
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let declared = channel.queue_declare(dead, options, FieldTable::default()).await;
        declared.map(|queue| queue.message_count().into()).map_err(|error| self.broken(error))
    }

    async fn fetch(&mut self) -> Result<Option<(StoredLetter, BasicGetMessage)>, SourceError> {
        let dead = ShortString::from(self.queue.dead_name());
        let last = self.listed.take();
        let open = self.open().await?;
        open.left.extend(last.map(|last| last.delivery.acker));
        let taken = tokio::select! {
            taken = open.channel.basic_get(dead, BasicGetOptions::default()) => taken,
            // The client ends the connection at a letter that it cannot read, and then never returns.
            error = open.alarm.failed() => Err(error),
        };
        let Some(taken) = taken.map_err(|error| self.broken(error))? else {
            // A reader at its end must not hide the letters from a redrive.
            self.leave().await;
            return Ok(None);
        };
        let (properties, body) = (taken.properties.clone(), taken.data.clone());
        let letter = decode_letter(&properties, &self.queue);
        let now = SystemClock::new().wall();
        let headers = RetryHeaders::decode(properties, &self.queue, &ExpirySettings::default(), now);
        let mut delivery = headers.delivery(Position::of(self.queue.dead_name()), body);
        delivery.redelivered = taken.redelivered;
        delivery.delivered = Some(headers.delivered);
        let id = self.ids.next(&delivery, letter.as_ref());
        Ok(Some((StoredLetter::new(id, delivery, letter), taken)))
    }

    async fn revive(&mut self, taken: &BasicGetMessage) -> Result<bool, SourceError> {
        let (properties, to) = (redriven_properties(&taken.properties, &self.queue.name), self.to.clone());
        let open = self.open().await?;
        if !open.publishing.limit.fits_letter(&properties) {
            return Err(refused("its headers exceed the broker's frame_max"));
        }
        let publish = open.publishing.publish(("", &to), properties, &taken.data, async |_| Ok(()));
        let failed = match timeout(CONFIRM_TIMEOUT, publish).await {
            Ok(Ok(())) => match taken.acker.ack(BasicAckOptions::default()).await {
                Ok(true) => return Ok(true),
                Ok(false) => transient(
                    "putting a letter back: the connection closed before the acknowledgement; the letter is in both queues",
                ),
                Err(error) => transient(
                    "putting a letter back: acknowledging failed; the letter is in the queue, and possibly still a dead \
                     letter",
                )
                .with_cause(error),
            },
            Ok(Err(failure)) => not_put_back(failure),
            Err(_) if open.alarm.reason().is_some() => transient(&format!(
                "putting a letter back: the broker blocks publishers ({}); free its memory or disk; the letter is \
                 still a dead letter, and possibly in the queue",
                open.alarm.reason().unwrap_or_default()
            )),
            Err(_) => transient(
                "putting a letter back: no confirm within 10 s; the letter is still a dead letter, and possibly in the \
                 queue",
            ),
        };
        // A refused letter is held while the others are changed: the broker would deliver it again at once. If the answer
        // to another one fails, the closed connection returns the letter.
        if failed.kind() != SourceErrorKind::Refused {
            let _ = timeout(RETURN_TIMEOUT, taken.acker.nack(REQUEUE)).await;
        }
        Err(failed)
    }

    async fn remove(&mut self, taken: &BasicGetMessage) -> Result<bool, SourceError> {
        let dead = ShortString::from(self.queue.dead_name());
        let channel = self.open().await?.channel.clone();
        let removed = async {
            let is_open = taken.acker.ack(BasicAckOptions::default()).await?;
            // A broker handles the methods of a channel in order, so this answer confirms the acknowledgement.
            let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(dead, options, FieldTable::default()).await?;
            Ok::<_, lapin::Error>(is_open)
        };
        match timeout(CONFIRM_TIMEOUT, removed).await {
            Ok(Ok(true)) => Ok(true),
            Ok(Ok(false)) => {
                Err(transient("removing a letter: the connection closed before; the letter is still a dead letter"))
            }
            Ok(Err(error)) => {
                let text = "removing a letter: the connection failed; the letter is possibly still a dead letter";
                Err(transient(text).with_cause(error))
            }
            Err(_) => {
                Err(transient("removing a letter: no answer within 10 s; the letter is possibly still a dead letter"))
            }
        }
    }

    /// Drops the connection, unless the error concerns only one letter. The broker then returns the letters to their queue.
    fn failed(&mut self, error: &SourceError) {
        if error.kind() != SourceErrorKind::Refused {
            (self.open, self.listed) = (None, None);
        }
    }

    async fn leave(&mut self) {
        let last = self.listed.take().map(|last| last.delivery.acker);
        let Some(open) = self.open.take() else { return };
        // A quorum queue keeps the order in which letters return. A closed channel returns them in any order.
        let returned = async {
            for acker in open.left.iter().chain(&last) {
                acker.nack(REQUEUE).await?;
            }
            open.channel.close(200, "done".into()).await
        };
        // If this fails, the closed connection returns the letters.
        let _ = timeout(RETURN_TIMEOUT, returned).await;
    }
}

fn not_put_back(failure: PublishFailure) -> SourceError {
    match failure {
        PublishFailure::Unroutable => SourceError::new(
            SourceErrorKind::Fatal,
            "putting a letter back: the queue does not exist; declare it, or use another queue",
        ),
        PublishFailure::QueueDown(_) => transient(
            "putting a letter back: the node of the queue is down; the letter is still a dead letter, retry later",
        ),
        PublishFailure::Nacked => transient(
            "putting a letter back: the broker rejected it for now; check whether the queue is full, and retry",
        ),
        PublishFailure::Broken { error, .. } if is_too_large(&error) => {
            refused("its body exceeds the broker's max_message_size").with_cause(error)
        }
        PublishFailure::Broken { error, .. } if is_final(&error) => {
            let text = "putting a letter back: the queue cannot be written; the cause shows what is missing";
            SourceError::new(SourceErrorKind::Fatal, text).with_cause(error)
        }
        PublishFailure::Broken { error, unsent: true } => {
            transient("putting a letter back: the connection failed before sending; retry").with_cause(error)
        }
        PublishFailure::Broken { error, .. } => transient(
            "putting a letter back: the connection failed; the letter is still a dead letter, and possibly in the queue",
        )
        .with_cause(error),
    }
}

fn refused(why: &str) -> SourceError {
    let text = format!("putting a letter back: {why}; raise the limit, or publish a smaller message in its place");
    SourceError::new(SourceErrorKind::Refused, text)
}

/// Shows nothing of the URL's password.
impl fmt::Debug for RabbitDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (broker, queue) = (&self.url, &self.queue.name);
        f.debug_struct("RabbitDeadLetters").field("broker", broker).field("queue", queue).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPSoftError};

    use super::*;

    #[test]
    fn a_refused_queue_or_message_is_a_permanent_error_and_a_broken_connection_is_none() {
        let closed = |why, text: &str| -> lapin::Error {
            lapin::ErrorKind::ProtocolError(AMQPError::new(AMQPErrorKind::Soft(why), text.into())).into()
        };
        let denied = closed(AMQPSoftError::ACCESSREFUSED, "no access");
        let large = closed(AMQPSoftError::PRECONDITIONFAILED, "message size 20 is larger than configured max size 10");
        let cut = || std::io::Error::from(std::io::ErrorKind::ConnectionReset).into();
        for (failure, kind, text) in [
            (PublishFailure::Unroutable, SourceErrorKind::Fatal, "does not exist"),
            (PublishFailure::Nacked, SourceErrorKind::Transient, "check whether the queue is full"),
            (PublishFailure::Broken { error: denied, unsent: false }, SourceErrorKind::Fatal, "cannot be written"),
            (PublishFailure::Broken { error: large, unsent: false }, SourceErrorKind::Refused, "max_message_size"),
            (PublishFailure::Broken { error: cut(), unsent: true }, SourceErrorKind::Transient, "before sending"),
            (
                PublishFailure::Broken { error: cut(), unsent: false },
                SourceErrorKind::Transient,
                "possibly in the queue",
            ),
        ] {
            let error = not_put_back(failure);
            assert!(error.kind() == kind && error.to_string().contains(text), "{error}");
        }
    }
}

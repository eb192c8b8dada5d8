//! One connection of a source: the subscription, and the auxiliary queues declared on the connection.
use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt};
use idempotent_core::{Clock, Timestamp};
use idempotent_mq::{Delivery, Position, SourceError};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::{DeliveryTag, FieldTable};
use lapin::{Acker, BasicProperties, Channel, Connection, Consumer};
use tokio::runtime::Handle;

use crate::ack_batcher::AckBatcher;
use crate::confirmed_publisher::{ConfirmedPublisher, PublishFailure};
use crate::error::{failed, gone};
use crate::queue::REDECLARE;
use crate::retry_headers::MessageState;
use crate::settings::Settings;

/// The data for the settlement of a delivery. A tag that is dropped without a settlement gives its delivery back.
#[derive(Debug)]
pub struct RabbitTag {
    pub(crate) acker: Acker,
    /// The delivery tag of the channel.
    number: DeliveryTag,
    /// True after an acknowledgement or a return: a second one would close the channel.
    done: AtomicBool,
    pub(crate) marked: MessageState,
    /// The session of the delivery. Delivery tags of another channel are other deliveries.
    pub(crate) session: Arc<Session>,
    /// True if the copy or the dead letter is confirmed, and only the acknowledgement is missing.
    pub(crate) copied: AtomicBool,
}

/// The wait before an unsettled delivery is given back. The broker redelivers it at once, and it may remain unsettled
/// again.
const LEFT: Duration = Duration::from_secs(5);

/// Gives an unsettled delivery back. Otherwise, the broker would count it as in flight while the channel is open. If
/// the channel or the runtime has ended, the broker redelivers by itself.
impl Drop for RabbitTag {
    fn drop(&mut self) {
        // A delivery that was acknowledged in a batch has not used its own acker.
        if self.done.load(SeqCst) || !self.acker.usable() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        // A weak reference, so that the task does not keep the channel open: a closed channel returns its deliveries
        // at once.
        let (acker, session, number) = (self.acker.clone(), Arc::downgrade(&self.session), self.number);
        runtime.spawn(async move {
            tokio::time::sleep(LEFT).await;
            // An error means that the channel is closed.
            if acker.nack(GIVE_BACK).await.is_ok()
                && let Some(session) = session.upgrade()
            {
                session.acks.given_back(number);
            }
        });
    }
}

/// A connection, and the queues declared on it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) settings: Arc<Settings>,
    pub(crate) publishing: ConfirmedPublisher,
    acks: AckBatcher,
    /// The channel of the subscription. It closes when its last delivery is settled, not when the source is dropped.
    channel: Channel,
    declared: Mutex<HashMap<AuxiliaryQueue, Instant>>,
}

/// An auxiliary queue of the consumed queue.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum AuxiliaryQueue {
    Dead,
    /// The queue for retries with this delay in ms.
    Retry(u64),
}

/// The consuming part of a session.
#[derive(Debug)]
pub(crate) struct Subscription {
    session: Arc<Session>,
    consumer: Consumer,
    /// True if the end of the subscription followed a delivery directly.
    ended: bool,
}

/// The maximum number of copies and dead letters in flight.
const PUBLISHING: usize = 8;

pub(crate) async fn connected(settings: &Settings) -> Result<Connection, SourceError> {
    let connection = settings.address.connect(&settings.name()).await;
    connection.map_err(|error| failed("cannot connect to the broker", error))
}

/// Opens a channel and declares the queue.
pub(crate) async fn declared(settings: &Settings, connection: &Connection) -> Result<Channel, SourceError> {
    let declare = async {
        let channel = connection.create_channel().await?;
        settings.queue.declare(&channel).await?;
        // A quorum queue also dead-letters messages by itself.
        settings.queue.declare_dead(&channel).await?;
        Ok(channel)
    };
    let text = "cannot declare the queue or its dead-letter queue; the cause names the difference or the missing right";
    declare.await.map_err(|error: lapin::Error| failed(text, error))
}

impl Subscription {
    /// Connects, declares the queue and subscribes.
    pub(crate) async fn open(settings: &Arc<Settings>, prefetch: usize) -> Result<Self, SourceError> {
        let connection = connected(settings).await?;
        let channel = declared(settings, &connection).await?;
        let subscribe = async {
            let prefetch = u16::try_from(prefetch).unwrap_or(u16::MAX);
            channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
            let (queue, tag) = (settings.queue.name.as_str().into(), settings.consumer_tag.as_str().into());
            channel.basic_consume(queue, tag, BasicConsumeOptions::default(), FieldTable::default()).await
        };
        let consumer = subscribe.await.map_err(|error| failed("cannot consume the queue", error))?;
        let publishing = ConfirmedPublisher::new(connection, PUBLISHING);
        let session = Session {
            settings: settings.clone(),
            publishing,
            acks: AckBatcher::new(),
            channel,
            declared: Mutex::default(),
        };
        Ok(Self { session: Arc::new(session), consumer, ended: false })
    }

    /// Waits for at least one delivery, and returns at most `room`. Returns `None` after the channel or the queue is
    /// gone.
    pub(crate) async fn next(&mut self, room: usize, clock: &dyn Clock) -> Option<Vec<(Delivery, RabbitTag)>> {
        if self.ended {
            return None;
        }
        let first = self.consumer.next().await?.ok()?;
        let mut taken = vec![self.read(first, clock.wall())];
        while taken.len() < room
            && let Some(more) = self.consumer.next().now_or_never()
        {
            match more {
                Some(Ok(more)) => taken.push(self.read(more, clock.wall())),
                // The end is reported once: a further call would wait forever.
                _ => {
                    self.ended = true;
                    break;
                }
            }
        }
        Some(taken)
    }

    fn read(&self, from: lapin::message::Delivery, now: Timestamp) -> (Delivery, RabbitTag) {
        let settings = &self.session.settings;
        let marked = MessageState::read(from.properties, &settings.queue, &settings.end, now);
        let mut delivery = marked.delivery(settings.position(), from.data);
        delivery.delivered = settings.queue.counts().then_some(marked.delivered);
        delivery.redelivered = from.redelivered;
        let (session, no) = (self.session.clone(), || AtomicBool::new(false));
        let tag = RabbitTag { acker: from.acker, number: from.delivery_tag, done: no(), marked, session, copied: no() };
        (delivery, tag)
    }

    /// Cancels the subscription, and gives back deliveries that the consumer has not received.
    pub(crate) async fn close(&mut self) {
        // An error means that the channel is closed, which returns its deliveries.
        let cancelled = self.session.channel.basic_cancel(self.consumer.tag(), BasicCancelOptions::default());
        if cancelled.await.is_err() {
            return;
        }
        let mut rest = pin!(&mut self.consumer);
        while let Some(Some(Ok(delivery))) = rest.next().now_or_never() {
            let _ = delivery.acker.nack(GIVE_BACK).await;
        }
    }
}

impl RabbitTag {
    /// Acknowledges a delivery, in a batch with others.
    pub(crate) async fn ack(&self) -> Result<(), SourceError> {
        if self.done.swap(true, SeqCst) {
            return self.told(Ok(true));
        }
        match self.session.acks.ack(self.number, self.acker.clone()).await {
            Some(answer) => self.told(answer),
            None => Err(gone()),
        }
    }

    /// Gives a delivery back.
    pub(crate) async fn give_back(&self) -> Result<(), SourceError> {
        if self.done.swap(true, SeqCst) {
            return self.told(Ok(true));
        }
        let answer = self.acker.nack(GIVE_BACK).await;
        if answer.is_ok() {
            // After the return, because an acknowledgement with the flag `multiple` must not overtake it.
            self.session.acks.given_back(self.number);
        }
        self.told(answer)
    }

    /// Marks the delivery as settled. Returns false if it was settled before, or if the channel is closed, because
    /// another channel has other delivery tags.
    fn told(&self, answer: lapin::Result<bool>) -> Result<(), SourceError> {
        match answer {
            Ok(_) if !self.acker.poisoned() => Ok(()),
            Ok(_) => Err(gone()),
            Err(error) => Err(gone().with_cause(error)),
        }
    }
}

pub(crate) const GIVE_BACK: BasicNackOptions = BasicNackOptions { multiple: false, requeue: true };

impl Session {
    /// Publishes to an auxiliary queue, which is declared if that has not happened recently.
    pub(crate) async fn put(
        &self,
        auxiliary: AuxiliaryQueue,
        properties: BasicProperties,
        body: &[u8],
    ) -> Result<(), PublishFailure> {
        let queue = &self.settings.queue;
        let name = match auxiliary {
            AuxiliaryQueue::Dead => queue.dead(),
            AuxiliaryQueue::Retry(ms) => queue.retry(ms),
        };
        let declare = async |channel: &Channel| {
            if self.declared().get(&auxiliary).is_some_and(|at| at.elapsed() < REDECLARE) {
                return Ok(());
            }
            match auxiliary {
                AuxiliaryQueue::Dead => queue.declare_dead(channel).await?,
                AuxiliaryQueue::Retry(ms) => queue.declare_retry(channel, ms).await?,
            }
            self.declared().insert(auxiliary, Instant::now());
            Ok(())
        };
        let sent = self.publishing.publish(("", &name), properties, body, declare).await;
        if sent.is_err() {
            // The queue may have been deleted: the next try declares it again.
            self.declared().remove(&auxiliary);
        }
        sent
    }

    fn declared(&self) -> MutexGuard<'_, HashMap<AuxiliaryQueue, Instant>> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl crate::settings::Settings {
    pub(crate) fn position(&self) -> Position {
        Position::of(self.place.clone())
    }
}

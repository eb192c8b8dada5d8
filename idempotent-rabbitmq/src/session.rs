//! One connection of a source: what is consumed by it, and what is left beside the queue.
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

use crate::acks::Acks;
use crate::confirm::{Confirming, Unsent};
use crate::error::{failed, gone};
use crate::marks::Marked;
use crate::queue::REDECLARE;
use crate::settings::Settings;

/// What settling a delivery takes. Dropped unsettled, it is given back.
#[derive(Debug)]
pub struct RabbitTag {
    pub(crate) acker: Acker,
    /// The channel's number for this delivery.
    number: DeliveryTag,
    /// It was acknowledged or given back: a second time would end the channel.
    done: AtomicBool,
    pub(crate) marked: Marked,
    /// Tags are numbers of a channel: those of another one are other deliveries.
    pub(crate) session: Arc<Session>,
    /// The copy or the dead letter is confirmed; only the acknowledgement is missing.
    pub(crate) copied: AtomicBool,
}

/// Before what was left unsettled is given back: it is there again at once, and may be left again at once.
const LEFT: Duration = Duration::from_secs(5);

/// Left unsettled, it comes again; otherwise the broker would count it as held for as long as the channel lives. Where the
/// channel is gone, and where there is no runtime any more, it comes by itself.
impl Drop for RabbitTag {
    fn drop(&mut self) {
        // What was acknowledged together with others was not by its own acker.
        if self.done.load(SeqCst) || !self.acker.usable() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        // Not to keep the channel open: what it held comes again as soon as it is closed.
        let (acker, session, number) = (self.acker.clone(), Arc::downgrade(&self.session), self.number);
        runtime.spawn(async move {
            tokio::time::sleep(LEFT).await;
            // Where that fails the channel is gone.
            if acker.nack(GIVE_BACK).await.is_ok()
                && let Some(session) = session.upgrade()
            {
                session.acks.given_back(number);
            }
        });
    }
}

/// A connection, and what was declared by it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) settings: Arc<Settings>,
    pub(crate) publishing: Confirming,
    acks: Acks,
    /// What is consumed by. Closed when the last delivery of it is settled, and not when the source goes.
    channel: Channel,
    declared: Mutex<HashMap<Beside, Instant>>,
}

/// A queue beside the one that is consumed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Beside {
    Dead,
    /// By its delay in ms.
    Retry(u64),
}

/// The consuming end of a session.
#[derive(Debug)]
pub(crate) struct Intake {
    session: Arc<Session>,
    consumer: Consumer,
    /// Its end came right behind a delivery.
    ended: bool,
}

/// Copies and dead letters side by side.
const PUBLISHING: usize = 8;

pub(crate) async fn connected(settings: &Settings) -> Result<Connection, SourceError> {
    let connection = settings.address.connect(&settings.name()).await;
    connection.map_err(|error| failed("no connection", error))
}

/// A channel on which the queue was declared, or found.
pub(crate) async fn declared(settings: &Settings, connection: &Connection) -> Result<Channel, SourceError> {
    let declare = async {
        let channel = connection.create_channel().await?;
        settings.queue.declare(&channel).await?;
        // What a quorum queue gives up by itself has to find a place, too.
        settings.queue.declare_dead(&channel).await?;
        Ok(channel)
    };
    let text = "the queue or that of its dead letters cannot be declared; the cause says what differs or is missing";
    declare.await.map_err(|error: lapin::Error| failed(text, error))
}

impl Intake {
    /// Connects, sees to the queue and subscribes.
    pub(crate) async fn open(settings: &Arc<Settings>, prefetch: usize) -> Result<Self, SourceError> {
        let connection = connected(settings).await?;
        let channel = declared(settings, &connection).await?;
        let subscribe = async {
            let prefetch = u16::try_from(prefetch).unwrap_or(u16::MAX);
            channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
            let (queue, tag) = (settings.queue.name.as_str().into(), settings.consumer_tag.as_str().into());
            channel.basic_consume(queue, tag, BasicConsumeOptions::default(), FieldTable::default()).await
        };
        let consumer = subscribe.await.map_err(|error| failed("the queue cannot be consumed", error))?;
        let publishing = Confirming::new(connection, PUBLISHING);
        let session =
            Session { settings: settings.clone(), publishing, acks: Acks::new(), channel, declared: Mutex::default() };
        Ok(Self { session: Arc::new(session), consumer, ended: false })
    }

    /// At least one delivery, at most `room`; `None` once the channel is gone, or the queue.
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
                // Told once: whoever asks again waits for ever.
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
        let marked = Marked::read(from.properties, &settings.queue, &settings.end, now);
        let mut delivery = marked.delivery(settings.position(), from.data);
        delivery.delivered = settings.queue.counts().then_some(marked.delivered);
        delivery.redelivered = from.redelivered;
        let (session, no) = (self.session.clone(), || AtomicBool::new(false));
        let tag = RabbitTag { acker: from.acker, number: from.delivery_tag, done: no(), marked, session, copied: no() };
        (delivery, tag)
    }

    /// Unsubscribes, and gives back what was sent and not handed over.
    pub(crate) async fn close(&mut self) {
        // Where it fails the channel is gone, and with it all that it held.
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
    /// Acknowledges it, together with others.
    pub(crate) async fn ack(&self) -> Result<(), SourceError> {
        if self.done.swap(true, SeqCst) {
            return self.told(Ok(true));
        }
        match self.session.acks.ack(self.number, self.acker.clone()).await {
            Some(answer) => self.told(answer),
            None => Err(gone()),
        }
    }

    /// Gives it back.
    pub(crate) async fn give_back(&self) -> Result<(), SourceError> {
        if self.done.swap(true, SeqCst) {
            return self.told(Ok(true));
        }
        let answer = self.acker.nack(GIVE_BACK).await;
        if answer.is_ok() {
            // Not before: an acknowledgement of all up to here must not overtake it.
            self.session.acks.given_back(self.number);
        }
        self.told(answer)
    }

    /// `false` where it was told before, or the channel is gone: its numbers mean other deliveries on another one.
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
    /// Publishes to a queue beside ours, which is declared where that was not done lately.
    pub(crate) async fn put(&self, beside: Beside, properties: BasicProperties, body: &[u8]) -> Result<(), Unsent> {
        let queue = &self.settings.queue;
        let name = match beside {
            Beside::Dead => queue.dead(),
            Beside::Retry(ms) => queue.retry(ms),
        };
        let declare = async |channel: &Channel| {
            if self.declared().get(&beside).is_some_and(|at| at.elapsed() < REDECLARE) {
                return Ok(());
            }
            match beside {
                Beside::Dead => queue.declare_dead(channel).await?,
                Beside::Retry(ms) => queue.declare_retry(channel, ms).await?,
            }
            self.declared().insert(beside, Instant::now());
            Ok(())
        };
        let sent = self.publishing.publish(("", &name), properties, body, declare).await;
        if sent.is_err() {
            // It may have been deleted: the next try makes it again.
            self.declared().remove(&beside);
        }
        sent
    }

    fn declared(&self) -> MutexGuard<'_, HashMap<Beside, Instant>> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl crate::settings::Settings {
    pub(crate) fn position(&self) -> Position {
        Position::of(self.place.clone())
    }
}

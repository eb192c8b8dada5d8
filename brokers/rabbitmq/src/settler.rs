//! Settlement of deliveries. A copy or dead letter is stored and confirmed first, then the delivery is acknowledged.
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{Delivery, Retry, Settle, Settlement, SourceError, SourceErrorKind};
use lapin::options::{BasicAckOptions, BasicRejectOptions};
use lapin::types::DeliveryTag;
use lapin::{Acker, BasicProperties};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tracing::warn;

use crate::carrier::RetryHeaders;
use crate::copies::{AuxiliaryQueue, PendingCopy};
use crate::error::{channel_closed, is_final, is_too_large, transient};
use crate::publish_connection::PublishFailure;
use crate::retry_levels::sufficient_ms;
use crate::session::{ConsumerSession, REQUEUE};

/// The handle that settles a delivery. An unsettled delivery is given back after the drop, or acknowledged if its copy is
/// confirmed before that.
#[derive(Debug)]
pub struct RabbitTag {
    acker: Acker,
    /// The number of the delivery on its channel.
    number: DeliveryTag,
    /// True if the delivery was acknowledged or given back. A second answer would close the channel.
    answered: AtomicBool,
    headers: RetryHeaders,
    /// The session of the delivery. The same number on another channel is another delivery.
    session: Arc<ConsumerSession>,
    /// True if the copy or dead letter is confirmed and only the acknowledgement is missing.
    copied: AtomicBool,
    /// The copy or dead letter that an earlier settlement has published, and that is not confirmed yet. There is no
    /// second one before its result is known.
    copy: Mutex<Option<PendingCopy>>,
}

#[derive(Debug)]
pub(crate) struct RabbitSettler;

/// Time until an unsettled delivery is given back. The broker redelivers such a message immediately, so this limits the
/// rate of a message that is never settled.
const REQUEUE_DELAY: Duration = Duration::from_secs(5);

#[async_trait]
impl Settle<RabbitTag> for RabbitSettler {
    async fn settle(&self, delivery: &Delivery, tag: &RabbitTag, settlement: &Settlement) -> Result<(), SourceError> {
        if tag.acker.poisoned() {
            return Err(channel_closed());
        }
        match settlement {
            Settlement::Ack => {}
            Settlement::GiveBack => return tag.give_back().await,
            Settlement::Retry(retry) if tag.is_delayed_by_broker(retry).await => return tag.defer().await,
            Settlement::Retry(retry) => {
                let queue = AuxiliaryQueue::Retry(sufficient_ms(retry.after));
                let copy = tag.headers.encode_retry(retry);
                if !tag.session.limit.fits_retry(&copy, &tag.session.settings.queue) {
                    return Err(too_large(
                        "its headers, and those that the broker adds, exceed the broker's frame_max",
                    ));
                }
                tag.store(queue, &delivery.body, copy).await?;
            }
            Settlement::DeadLetter(letter) => {
                let (queue, limit) = (&tag.session.settings.queue.name, tag.session.limit);
                let fits = |letter: &BasicProperties| limit.fits_letter(letter);
                let (letter, left_out) = tag.headers.encode_dead_letter(letter, queue, fits);
                tag.store(AuxiliaryQueue::DeadLetters, &delivery.body, letter).await?;
                if !left_out.is_empty() {
                    warn!(target: "idempotent", queue, left_out = left_out.len(),
                        "dead letter stored without its largest headers, which exceed the broker's frame_max");
                }
            }
            other => {
                let text = format!("settlement `{}` is not supported by this source", other.name());
                return Err(SourceError::new(SourceErrorKind::Fatal, text));
            }
        }
        tag.ack().await
    }

    async fn keep_alive(&self, _: &[&RabbitTag]) -> Result<(), SourceError> {
        Ok(())
    }
}

impl RabbitTag {
    pub(crate) fn new(session: Arc<ConsumerSession>, acker: Acker, number: DeliveryTag, headers: RetryHeaders) -> Self {
        let (answered, copied) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { acker, number, answered, headers, session, copied, copy: Mutex::default() }
    }

    /// Stores a copy or dead letter, unless an earlier settlement has stored one and then failed.
    async fn store(&self, queue: AuxiliaryQueue, body: &[u8], properties: BasicProperties) -> Result<(), SourceError> {
        if self.copied.load(SeqCst) {
            return Ok(());
        }
        let (copies, mut pending) = (&self.session.copies, self.copy.lock().await);
        let copy = pending.get_or_insert_with(|| copies.start(queue, properties, body.to_vec()));
        let stored = tokio::select! {
            biased;
            stored = copy => stored,
            reason = copies.connection.alarm.raised() => {
                let text = format!("storing the copy: the broker blocks publishers ({reason}); free its memory or disk");
                return Err(transient(&text));
            }
        };
        *pending = None;
        match stored {
            Ok(Ok(())) => self.copied.store(true, SeqCst),
            Ok(Err(failure)) => return Err(self.not_stored(failure)),
            Err(_) => {
                return Err(transient("storing the copy: the task was stopped, since its runtime is shutting down"));
            }
        }
        Ok(())
    }

    fn not_stored(&self, failure: PublishFailure) -> SourceError {
        match failure {
            PublishFailure::Unroutable => {
                transient("storing the copy: its queue was deleted; the next attempt declares the queue again")
            }
            PublishFailure::QueueDown(_) => transient("storing the copy: the node of its queue is down"),
            PublishFailure::Nacked => {
                transient("storing the copy: the broker rejected it for now; check the limits of its queue")
            }
            PublishFailure::Broken { .. } if self.acker.poisoned() => channel_closed(),
            PublishFailure::Broken { error, .. } if is_too_large(&error) => {
                too_large("its body exceeds the broker's max_message_size").with_cause(error)
            }
            PublishFailure::Broken { error, .. } if is_final(&error) => {
                let text = "storing the copy: its queue cannot be declared or written; the cause shows what differs or \
                            is missing";
                SourceError::new(SourceErrorKind::Fatal, text).with_cause(error)
            }
            PublishFailure::Broken { error, .. } => {
                transient("storing the copy: the channel failed; see the cause").with_cause(error)
            }
        }
    }

    /// Acknowledges the delivery, possibly together with others.
    async fn ack(&self) -> Result<(), SourceError> {
        if self.answered.swap(true, SeqCst) {
            return self.check_answer(Ok(true));
        }
        match self.session.acks.ack(self.number, self.acker.clone()).await {
            Some(answer) => {
                self.check_answer(answer)?;
                self.session.settled.fetch_add(1, SeqCst);
                Ok(())
            }
            None => Err(channel_closed()),
        }
    }

    /// Gives the delivery back. With a single active consumer, this happens when the session closes: the broker would
    /// deliver the message to this session again, after later messages.
    async fn give_back(&self) -> Result<(), SourceError> {
        if self.answered.swap(true, SeqCst) || self.session.settings.queue.is_single_active() {
            return self.check_answer(Ok(true));
        }
        self.requeue().await
    }

    /// Returns whether the broker delays the message of this retry. The broker stores nothing with the message, so the
    /// number of the attempt must be unchanged.
    async fn is_delayed_by_broker(&self, retry: &Retry) -> bool {
        self.session.settings.queue.delays(retry.after)
            && retry.attempt == self.headers.envelope.attempt.unwrap_or(1)
            && !self.copied.load(SeqCst)
            && self.copy.lock().await.is_none()
    }

    /// Lets the broker deliver the message again after the delay of the queue.
    async fn defer(&self) -> Result<(), SourceError> {
        if self.answered.swap(true, SeqCst) {
            return self.check_answer(Ok(true));
        }
        self.requeue().await?;
        self.session.settled.fetch_add(1, SeqCst);
        Ok(())
    }

    async fn requeue(&self) -> Result<(), SourceError> {
        let answer = self.acker.nack(REQUEUE).await;
        if answer.is_ok() {
            // Only now may a joint acknowledgement cover this delivery: it must not reach the broker before the `nack`.
            self.session.acks.note_given_back(self.number);
        }
        self.check_answer(answer)
    }

    /// Checks that the channel is open, since the broker redelivers all messages of a closed channel. The client
    /// returns false for a repeated answer, which is no error.
    fn check_answer(&self, answer: lapin::Result<bool>) -> Result<(), SourceError> {
        match answer {
            Ok(_) if !self.acker.poisoned() => Ok(()),
            Ok(_) => Err(channel_closed()),
            Err(error) => Err(channel_closed().with_cause(error)),
        }
    }
}

/// Returns the error for a copy that is larger than the broker allows.
fn too_large(why: &str) -> SourceError {
    SourceError::new(
        SourceErrorKind::Refused,
        format!("storing the copy: {why}; send smaller messages, or raise the limit"),
    )
}

/// Gives an unsettled delivery back, or acknowledges the delivery if its copy is confirmed. Otherwise the broker would
/// count the delivery as held while the channel is open. Without an open channel or a runtime, the broker redelivers the
/// message by itself.
impl Drop for RabbitTag {
    fn drop(&mut self) {
        // A joint acknowledgement uses the acker of another delivery, so the own acker does not show whether this one
        // is settled.
        if self.answered.load(SeqCst) || !self.acker.usable() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        // A strong reference would keep the channel open. When the channel closes, the broker redelivers the message
        // immediately.
        let unsettled = UnsettledDelivery {
            acker: self.acker.clone(),
            number: self.number,
            session: Arc::downgrade(&self.session),
            copied: self.copied.load(SeqCst),
            copy: self.copy.get_mut().take(),
        };
        runtime.spawn(unsettled.answer());
    }
}

/// A delivery whose tag was dropped.
struct UnsettledDelivery {
    acker: Acker,
    number: DeliveryTag,
    session: Weak<ConsumerSession>,
    copied: bool,
    copy: Option<PendingCopy>,
}

impl UnsettledDelivery {
    async fn answer(self) {
        let is_stored = match self.copy {
            // During an alarm of the broker, the confirm may take hours.
            Some(copy) => matches!(copy.await, Ok(Ok(()))),
            None => self.copied,
        };
        let answer = if is_stored {
            self.acker.ack(BasicAckOptions::default()).await
        } else {
            tokio::time::sleep(REQUEUE_DELAY).await;
            // Since RabbitMQ 4.3, only a rejection counts towards the delivery limit of a quorum queue.
            self.acker.reject(BasicRejectOptions { requeue: true }).await
        };
        // An error means that the channel is closed.
        if answer.is_ok()
            && let Some(session) = self.session.upgrade()
        {
            session.acks.note_given_back(self.number);
        }
    }
}

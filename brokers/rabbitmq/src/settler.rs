//! Settlement of deliveries. A copy or dead letter is stored and confirmed first, then the delivery is acknowledged.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{Delivery, Settle, Settlement, SourceError, SourceErrorKind};
use lapin::types::DeliveryTag;
use lapin::{Acker, BasicProperties};
use tokio::runtime::Handle;

use crate::error::{channel_closed, is_final, transient};
use crate::publish_connection::PublishFailure;
use crate::retry_headers::RetryHeaders;
use crate::retry_levels::sufficient_ms;
use crate::session::{AuxiliaryQueue, ConsumerSession, REQUEUE};

/// The handle that settles a delivery. An unsettled delivery is given back after the drop.
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
            Settlement::Retry(retry) => {
                let queue = AuxiliaryQueue::Retry(sufficient_ms(retry.after));
                tag.store(queue, &delivery.body, tag.headers.encode_retry(retry)).await?;
            }
            Settlement::DeadLetter(letter) => {
                let letter = tag.headers.encode_dead_letter(letter, &tag.session.settings.queue.name);
                tag.store(AuxiliaryQueue::DeadLetters, &delivery.body, letter).await?;
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
        Self { acker, number, answered, headers, session, copied }
    }

    /// Stores a copy or dead letter, unless an earlier settlement has stored one and then failed.
    async fn store(&self, queue: AuxiliaryQueue, body: &[u8], properties: BasicProperties) -> Result<(), SourceError> {
        if self.copied.load(SeqCst) {
            return Ok(());
        }
        self.session.store(queue, properties, body).await.map_err(|failure| self.not_stored(failure))?;
        self.copied.store(true, SeqCst);
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
            PublishFailure::Broken { .. } if self.acker.poisoned() || !self.session.publishing.is_alive() => {
                channel_closed()
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
            Some(answer) => self.check_answer(answer),
            None => Err(channel_closed()),
        }
    }

    async fn give_back(&self) -> Result<(), SourceError> {
        if self.answered.swap(true, SeqCst) {
            return self.check_answer(Ok(true));
        }
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

/// Gives an unsettled delivery back. Otherwise the broker would count the delivery as held while the channel is open.
/// Without an open channel or a runtime, the broker redelivers the message by itself.
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
        let (acker, session, number) = (self.acker.clone(), Arc::downgrade(&self.session), self.number);
        runtime.spawn(async move {
            tokio::time::sleep(REQUEUE_DELAY).await;
            // An error means that the channel is closed.
            if acker.nack(REQUEUE).await.is_ok()
                && let Some(session) = session.upgrade()
            {
                session.acks.note_given_back(number);
            }
        });
    }
}

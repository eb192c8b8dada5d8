//! Settlement of messages.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use idempotent_core::__private::start_of;
use idempotent_mq::{DeadLetter, Delivery, Envelope, Retry, Settle, Settlement, SourceError, SourceErrorKind};
use tokio::sync::MutexGuard;
use tracing::warn;

use crate::acks::AckQueue;
use crate::body::{self, StoredBody};
use crate::error::{Failure, SHORTER, refused_message};
use crate::message::{Hold, SqsTag};
use crate::queue::{BATCH, FifoIds, NewMessage, Queue};
use crate::retry_marks::RetryMarks;

/// The settling half of a source.
#[derive(Debug)]
pub(crate) struct SqsSettler {
    pub(crate) queue: Queue,
    /// The queue of the dead letters.
    pub(crate) dead: Queue,
    pub(crate) acks: AckQueue,
    pub(crate) marks: Arc<RetryMarks>,
    pub(crate) visibility: Duration,
}

const RETRYING: &str = "retrying a message";
const RETURNING: &str = "returning a message";
const EXTENDING: &str = "extending messages";
const DEAD_LETTERING: &str = "dead-lettering a message";

/// A message whose visibility timeout no other request changes.
type Locked<'a> = (&'a SqsTag, MutexGuard<'a, Hold>);

#[async_trait]
impl Settle<SqsTag> for SqsSettler {
    async fn settle(&self, delivery: &Delivery, tag: &SqsTag, settlement: &Settlement) -> Result<(), SourceError> {
        match settlement {
            Settlement::Ack => self.ack(tag).await,
            Settlement::Retry(retry) => self.release(tag, Some(retry), RETRYING).await,
            Settlement::DeadLetter(letter) => self.dead_letter(delivery, tag, letter).await,
            Settlement::GiveBack => self.release(tag, None, RETURNING).await,
            other => {
                let text = format!("settlement `{}` is not supported by this source", other.name());
                Err(SourceError::new(SourceErrorKind::Fatal, text))
            }
        }
    }

    async fn keep_alive(&self, held: &[&SqsTag]) -> Result<(), SourceError> {
        // A message that is being settled needs no extension.
        let locked = held.iter().filter_map(|tag| Some((*tag, tag.hold.try_lock().ok()?)));
        let held: Vec<Locked<'_>> = locked.filter(|(_, hold)| !hold.has_ended).collect();
        let extended = join_all(held.chunks(BATCH).map(|chunk| self.extend(chunk))).await;
        extended.into_iter().collect()
    }
}

impl SqsSettler {
    async fn ack(&self, tag: &SqsTag) -> Result<(), SourceError> {
        self.acks.ack(&tag.receipt).await?;
        self.marks.remove(&tag.message);
        Ok(())
    }

    /// Makes a message available to all consumers: after the delay of a retry, or now.
    async fn release(&self, tag: &SqsTag, retry: Option<&Retry>, doing: &str) -> Result<(), SourceError> {
        let mut hold = tag.hold.lock().await;
        if !hold.is_marked {
            // Before the request, because the message may be received again before the answer arrives.
            self.marks.put(&tag.message, retry);
            hold.is_marked = true;
        }
        let seconds = tag.seconds(retry.map_or(Duration::ZERO, |retry| retry.after));
        self.queue.change(&tag.receipt, seconds, doing).await.map_err(|failure| failure.source())?;
        hold.has_ended = true;
        Ok(())
    }

    /// Extends at most ten messages.
    async fn extend(&self, held: &[Locked<'_>]) -> Result<(), SourceError> {
        let entries: Vec<_> =
            held.iter().filter_map(|(tag, _)| Some((&*tag.receipt, tag.extension(self.visibility)?))).collect();
        if entries.is_empty() {
            return Ok(());
        }
        let failed = self.queue.change_batch(entries.into_iter(), EXTENDING).await;
        let failed = failed.map_err(|failure| failure.source())?;
        let failures = failed.iter().map(|entry| Failure::of_entry(EXTENDING, entry));
        // A message that is already lost is no error.
        failures.filter(|failure| !failure.is_gone()).map(|failure| Err(failure.source())).next().unwrap_or(Ok(()))
    }

    async fn dead_letter(&self, delivery: &Delivery, tag: &SqsTag, letter: &DeadLetter) -> Result<(), SourceError> {
        let mut hold = tag.hold.lock().await;
        if !hold.is_buried {
            // A message that another consumer holds must not become two letters.
            let seconds = tag.seconds(self.visibility);
            let extended = self.queue.change(&tag.receipt, seconds, DEAD_LETTERING).await;
            extended.map_err(|failure| failure.source())?;
            let (copy, omitted) = self.copy(delivery, tag, letter)?;
            self.dead.send(copy, DEAD_LETTERING).await.map_err(|failure| failure.source())?;
            hold.is_buried = true;
            if let Some(omitted) = omitted {
                let (queue, message) = (&*self.queue.name, &*tag.message);
                warn!(target: "idempotent", queue, message, omitted,
                    "sqs: the dead letter is incomplete, because its queue accepts no larger one");
            }
        }
        self.ack(tag).await
    }

    /// Returns the dead letter of a message, and what the letter lacks because its queue accepts no larger one.
    ///
    /// # Errors
    /// `Refused`: the message itself is too large for the queue of the dead letters.
    fn copy(
        &self,
        delivery: &Delivery,
        tag: &SqsTag,
        letter: &DeadLetter,
    ) -> Result<(NewMessage, Option<&'static str>), SourceError> {
        let StoredBody { text, mark } = body::store(&delivery.body);
        // A letter that is sent again has the same ids. Each letter has a group of its own, so that it hides no other letter.
        let death = format!("{}/{}", tag.message, letter.deaths);
        let fifo = self.dead.is_fifo().then(|| FifoIds { group: death.clone(), deduplication: death });
        let mut envelope = Envelope::of(delivery).dead(letter);
        envelope.business_key = None;
        let dead = |envelope: &Envelope| tag.attributes.dead(&self.queue.name, tag.group.as_deref(), envelope, mark);
        let attributes = dead(&envelope);
        let mut copy = NewMessage { body: text, attributes, fifo, delay: None };
        let is_too_large = |copy: &NewMessage| copy.size() > self.dead.largest;
        if !is_too_large(&copy) {
            return Ok((copy, None));
        }
        envelope.letter = Some(shortened(letter));
        copy.attributes = dead(&envelope);
        if !is_too_large(&copy) {
            return Ok((copy, Some("the end of its reason")));
        }
        copy.attributes = tag.attributes.bare(mark);
        if is_too_large(&copy) {
            let text = format!("the message has {} bytes; {SHORTER} `{}`", copy.size(), self.dead.name);
            return Err(refused_message(DEAD_LETTERING, &text));
        }
        Ok((copy, Some("its reason and the data of the consumer")))
    }
}

/// Returns a letter with the beginning of its reason.
fn shortened(letter: &DeadLetter) -> DeadLetter {
    let mut letter = letter.clone();
    let reason = start_of(&letter.reason, REASON);
    letter.reason = format!("{reason}… (shortened)").into();
    letter
}

/// The maximum size of the reason in a letter that is otherwise too large.
const REASON: usize = 200;

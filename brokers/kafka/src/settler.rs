//! Settlement of messages.
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use idempotent_mq::{DeadLetter, Delivery, Retry, Settle, Settlement, SourceError, SourceErrorKind};
use tokio::time::timeout;
use tracing::warn;

use crate::assignment::{Assignment, at_once};
use crate::error::{copy_failure, is_too_large};
use crate::message::{Copy, LetterForm, Original};
use crate::partition::{RetryMark, Return};
use crate::place::{PartitionName, Place};
use crate::producer::Producer;

/// The handle that settles a message. A tag that is dropped before its message is settled returns the message.
pub struct KafkaTag {
    pub(crate) place: Place,
    pub(crate) original: Original,
    /// The mark of the last retry, which a return keeps.
    pub(crate) mark: Option<RetryMark>,
    pub(crate) assignment: Arc<Assignment>,
}

impl Drop for KafkaTag {
    fn drop(&mut self) {
        self.assignment.give_back(&self.place, at_once(self.mark));
    }
}

impl fmt::Debug for KafkaTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaTag").field("place", &self.place).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct KafkaSettler {
    pub(crate) assignment: Arc<Assignment>,
    pub(crate) producer: Producer,
    pub(crate) group: Arc<str>,
    /// The topic of the dead letters.
    pub(crate) dead: Arc<str>,
    /// The topic of retries, or `None` if retried messages are read again.
    pub(crate) retry: Option<Arc<str>>,
}

/// The maximum time to wait for the end of a member after its last settlement.
const LEAVING: Duration = Duration::from_secs(3);

#[async_trait]
impl Settle<KafkaTag> for KafkaSettler {
    async fn settle(&self, delivery: &Delivery, tag: &KafkaTag, settlement: &Settlement) -> Result<(), SourceError> {
        let place = &tag.place;
        match settlement {
            Settlement::Ack => held(self.assignment.settle(place))?,
            Settlement::Retry(retry) => self.retry(delivery, tag, retry).await?,
            Settlement::DeadLetter(letter) => self.dead_letter(delivery, tag, letter).await?,
            Settlement::GiveBack => held(self.assignment.give_back(place, at_once(tag.mark)))?,
            other => {
                let text = format!("settlement `{}` is not supported by this source", other.name());
                return Err(SourceError::new(SourceErrorKind::Fatal, text));
            }
        }
        self.leave().await;
        Ok(())
    }

    async fn keep_alive(&self, _: &[&KafkaTag]) -> Result<(), SourceError> {
        Ok(())
    }
}

impl KafkaSettler {
    async fn retry(&self, delivery: &Delivery, tag: &KafkaTag, retry: &Retry) -> Result<(), SourceError> {
        let Some(topic) = &self.retry else {
            let now = Instant::now();
            let due = now.checked_add(retry.after).unwrap_or(now + FAR);
            let again = Return { due, mark: Some((retry.attempt, retry.first_at)) };
            return held(self.assignment.give_back(&tag.place, again));
        };
        let copy = tag.original.retry(delivery, retry);
        self.replace(tag, topic, copy, "retrying a message").await
    }

    /// Dead-letters a message. A letter that its topic does not accept because of its size is replaced by a smaller one.
    async fn dead_letter(&self, delivery: &Delivery, tag: &KafkaTag, letter: &DeadLetter) -> Result<(), SourceError> {
        let mut settled = Ok(());
        for form in LetterForm::ALL {
            let copy = tag.original.dead_letter(delivery, letter, &self.group, form);
            settled = self.replace(tag, &self.dead, copy, "dead-lettering a message").await;
            match (&settled, form.omitted()) {
                (Err(error), _) if is_too_large(error) => {}
                (Ok(()), Some(omitted)) => {
                    let Place { partition: PartitionName { topic, number }, offset, .. } = &tag.place;
                    warn!(target: "idempotent", topic = &**topic, partition = number, offset, omitted,
                        "kafka: the dead letter lacks a part of its message, because its topic accepts no larger one");
                    break;
                }
                _ => break,
            }
        }
        settled
    }

    /// Settles a delivery once its copy is confirmed.
    async fn replace(&self, tag: &KafkaTag, topic: &str, copy: Copy, doing: &str) -> Result<(), SourceError> {
        held(self.assignment.holds(&tag.place))?;
        let sent = self.producer.confirmed(topic, copy).await;
        sent.map_err(|error| copy_failure(doing, error))?;
        self.assignment.discard_outputs(&tag.place);
        held(self.assignment.settle(&tag.place))
    }

    /// Waits after the last settlement of a closed source, until the offsets are committed and the member has left its group. The
    /// process may end right after the consumer.
    async fn leave(&self) {
        if self.assignment.lock().is_done() {
            let mut left = self.assignment.left.subscribe();
            // The offsets may be committed later, or the messages are delivered again.
            let _ = timeout(LEAVING, left.wait_for(|left| *left)).await;
        }
    }
}

/// A delay that exceeds the lifetime of a process.
const FAR: Duration = Duration::from_secs(10 * 365 * 86_400);

fn held(is_held: bool) -> Result<(), SourceError> {
    let gone = || {
        let text = "the delivery is settled, or its partition was revoked; another member delivers the message again";
        SourceError::new(SourceErrorKind::Gone, text)
    };
    is_held.then_some(()).ok_or_else(gone)
}

//! Settlement of deliveries. A copy or dead letter is stored first, then the listener's call is answered.
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{Delivery, Settle, Settlement, SourceError, SourceErrorKind};
use tokio::sync::oneshot;
use tracing::warn;

use crate::carrier::RetryHeaders;
use crate::error::{client_ended, failure, rejection, transient};
use crate::producer::{PreparedMessage, SEND_LIMIT, SendFailure};
use crate::properties::Properties;
use crate::session::{ConsumerSession, DeliveryAnswer};

/// The handle that settles a delivery. The thread of a listener waits for its answer.
#[derive(Debug)]
pub struct RocketTag {
    session: Arc<ConsumerSession>,
    headers: RetryHeaders,
    /// The sender of the answer, or `None` after the answer.
    answer: Mutex<Option<oneshot::Sender<DeliveryAnswer>>>,
    /// True if the copy or dead letter is stored and only the answer is missing.
    copied: AtomicBool,
    /// The reason for which the broker has refused the whole dead letter.
    refusal: OnceLock<String>,
}

#[derive(Debug)]
pub(crate) struct RocketSettler;

/// Time that the last settlement of a session waits for the client to report to the broker.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);

#[async_trait]
impl Settle<RocketTag> for RocketSettler {
    async fn settle(&self, delivery: &Delivery, tag: &RocketTag, settlement: &Settlement) -> Result<(), SourceError> {
        if tag.is_answered() {
            return Ok(());
        }
        let (settings, headers, body) = (&tag.session.settings, &tag.headers, &delivery.body);
        match settlement {
            Settlement::Ack => {}
            Settlement::GiveBack if settings.orderly => return tag.again(headers.clone(), Duration::ZERO),
            Settlement::Retry(retry) if settings.orderly => {
                let mut headers = headers.clone();
                headers.envelope = headers.envelope.retried(retry);
                return tag.again(headers, retry.after);
            }
            Settlement::GiveBack => tag.store(tag.session.copy(headers, body, Duration::ZERO)).await?,
            Settlement::Retry(retry) => {
                let properties = headers.encode_retry(retry)?;
                let copy = tag.session.copy(headers, body, retry.after);
                tag.store(PreparedMessage { properties, ..copy }).await?;
            }
            Settlement::DeadLetter(letter) => {
                let (mut properties, mut left_out) = headers.encode_dead_letter(letter, settings);
                let mut body = &body[..];
                if tag.refusal.get().is_none() {
                    match tag.store_letter(properties.clone(), body).await {
                        Err(refusal) if refusal.kind() == SourceErrorKind::Refused && !body.is_empty() => {
                            let _ = tag.refusal.set(refusal.to_string());
                        }
                        stored => stored?,
                    }
                }
                if let Some(refusal) = tag.refusal.get() {
                    (properties, left_out) = headers.encode_reference(letter, settings, refusal);
                    body = &[];
                    tag.store_letter(properties, body).await?;
                }
                if left_out > 0 || body.len() < delivery.body.len() {
                    let (group, position) = (&settings.group, &delivery.position);
                    let (source, partition, offset) =
                        (&*position.source, position.partition, position.offset.as_deref());
                    warn!(
                        target: "idempotent", group, source, partition, offset, properties = left_out,
                        has_body = body.len() == delivery.body.len(), "a dead letter lacks parts that were too large"
                    );
                }
            }
            other => {
                let text = format!("settlement `{}` is not supported by this source", other.name());
                return Err(SourceError::new(SourceErrorKind::Fatal, text));
            }
        }
        let drain = &tag.session.drain;
        if !tag.answer(DeliveryAnswer::Settled) {
            return Err(client_ended());
        }
        if drain.is_closing() && drain.all_answered() {
            // The process may exit right after this.
            let _ = tokio::time::timeout(REPORT_TIMEOUT, drain.wait_for_end()).await;
        }
        Ok(())
    }

    async fn keep_alive(&self, _: &[&RocketTag]) -> Result<(), SourceError> {
        Ok(())
    }
}

impl RocketTag {
    pub(crate) fn new(
        session: Arc<ConsumerSession>,
        headers: RetryHeaders,
        answer: oneshot::Sender<DeliveryAnswer>,
    ) -> Self {
        Self {
            session,
            headers,
            answer: Mutex::new(Some(answer)),
            copied: AtomicBool::new(false),
            refusal: OnceLock::new(),
        }
    }

    fn is_answered(&self) -> bool {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Delivers the message again, before the later messages of its queue.
    fn again(&self, headers: RetryHeaders, after: Duration) -> Result<(), SourceError> {
        match self.answer(DeliveryAnswer::Again { headers: Box::new(headers), after }) {
            true => Ok(()),
            false => Err(client_ended()),
        }
    }

    fn is_copied(&self) -> bool {
        self.copied.load(SeqCst)
    }

    /// Stores a dead letter.
    async fn store_letter(&self, properties: Properties, body: &[u8]) -> Result<(), SourceError> {
        let letter = self.session.copy(&self.headers, body, Duration::ZERO);
        let topic = self.session.settings.dead_topic.clone();
        self.store(PreparedMessage { topic, properties, ..letter }).await
    }

    /// Stores a copy or dead letter, unless an earlier settlement has stored one and then failed.
    async fn store(&self, copy: PreparedMessage) -> Result<(), SourceError> {
        if self.is_copied() {
            return Ok(());
        }
        if self.session.drain.has_ended() {
            return Err(client_ended());
        }
        let topic = copy.topic.clone();
        self.session.producer.send(copy).await.map_err(|reason| not_stored(&topic, reason))?;
        self.copied.store(true, SeqCst);
        Ok(())
    }

    /// Sends the answer to the waiting thread. Returns false if the client has ended. A second answer has no effect.
    fn answer(&self, answer: DeliveryAnswer) -> bool {
        let waiting = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(waiting) = waiting else { return true };
        self.session.drain.note_answered();
        waiting.send(answer).is_ok()
    }
}

/// An unsettled message is redelivered after the drop, unless its copy is stored.
impl Drop for RocketTag {
    fn drop(&mut self) {
        self.answer(if self.is_copied() { DeliveryAnswer::Settled } else { DeliveryAnswer::Dropped });
    }
}

/// Creates the error of a message to this topic that is not confirmed.
pub(crate) fn not_stored(topic: &str, reason: SendFailure) -> SourceError {
    let doing = format!("storing a message in `{topic}`");
    match reason {
        SendFailure::Incomplete(status) => {
            transient(&format!("{doing}: not flushed or replicated as the broker is configured ({status:?})"))
        }
        SendFailure::Unanswered => transient(&format!(
            "{doing}: no answer within {} ms; check that the broker and the name server are running",
            SEND_LIMIT.as_millis()
        )),
        SendFailure::Ended => client_ended(),
        SendFailure::Failed(error) => match rejection(&error) {
            Some(remedy) => failure(&format!("{doing}: {remedy}"), error),
            None => failure(&format!("{doing} failed: {error}"), error),
        },
    }
}

//! Settling: a copy or a dead letter first, known to be in its queue; then the acknowledgement.
use std::sync::atomic::Ordering::SeqCst;

use async_trait::async_trait;
use idempotent_mq::{Delivery, Settle, Settlement, SourceError, SourceErrorKind};

use crate::confirm::Unsent;
use crate::error::{gone, is_final};
use crate::ladder::step;
use crate::session::{Beside, RabbitTag};

#[derive(Debug)]
pub(crate) struct Settler;

#[async_trait]
impl Settle<RabbitTag> for Settler {
    async fn settle(&self, delivery: &Delivery, tag: &RabbitTag, settlement: &Settlement) -> Result<(), SourceError> {
        if tag.acker.poisoned() {
            return Err(gone());
        }
        match settlement {
            Settlement::Ack => {}
            Settlement::GiveBack => return tag.give_back().await,
            Settlement::Retry(retry) => {
                tag.put(Beside::Retry(step(retry.after)), &delivery.body, tag.marked.for_retry(retry)).await?;
            }
            Settlement::DeadLetter(letter) => {
                let letter = tag.marked.for_dead_letter(letter, &tag.session.settings.queue.name);
                tag.put(Beside::Dead, &delivery.body, letter).await?;
            }
            // One that a later version adds is not known to be done.
            _ => return Err(SourceError::new(SourceErrorKind::Fatal, "this adapter does not know that settlement")),
        }
        tag.ack().await
    }

    async fn keep_alive(&self, _: &[&RabbitTag]) -> Result<(), SourceError> {
        Ok(())
    }
}

impl RabbitTag {
    async fn put(&self, beside: Beside, body: &[u8], properties: lapin::BasicProperties) -> Result<(), SourceError> {
        // Asked again because the acknowledgement failed: one copy is enough.
        if self.copied.load(SeqCst) {
            return Ok(());
        }
        self.session.put(beside, properties, body).await.map_err(|unsent| self.not_put(unsent))?;
        self.copied.store(true, SeqCst);
        Ok(())
    }

    fn not_put(&self, unsent: Unsent) -> SourceError {
        let transient = |text: &str| SourceError::new(SourceErrorKind::Transient, text);
        match unsent {
            Unsent::Unroutable => transient("the queue for it was deleted; the next try declares it again"),
            Unsent::Nacked => transient("the broker could not keep the copy"),
            Unsent::Broken { .. } if self.acker.poisoned() || !self.session.publishing.is_alive() => gone(),
            Unsent::Broken { error, .. } if is_final(&error) => SourceError::new(
                SourceErrorKind::Fatal,
                "the queue for it cannot be declared or written; the cause says what differs or is missing",
            )
            .with_cause(error),
            Unsent::Broken { error, .. } => transient("the channel for the copy failed").with_cause(error),
        }
    }
}

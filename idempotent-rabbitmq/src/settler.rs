//! Settlement: a confirmed copy or dead letter first, and then the acknowledgement.
use std::sync::atomic::Ordering::SeqCst;

use async_trait::async_trait;
use idempotent_mq::{Delivery, Settle, Settlement, SourceError, SourceErrorKind};

use crate::confirmed_publisher::PublishFailure;
use crate::delay_levels::step;
use crate::error::{gone, is_final};
use crate::session::{AuxiliaryQueue, RabbitTag};

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
                tag.put(AuxiliaryQueue::Retry(step(retry.after)), &delivery.body, tag.marked.for_retry(retry)).await?;
            }
            Settlement::DeadLetter(letter) => {
                let letter = tag.marked.for_dead_letter(letter, &tag.session.settings.queue.name);
                tag.put(AuxiliaryQueue::Dead, &delivery.body, letter).await?;
            }
            // A settlement that a later version of the runtime adds.
            _ => return Err(SourceError::new(SourceErrorKind::Fatal, "unknown settlement: update the adapter")),
        }
        tag.ack().await
    }

    async fn keep_alive(&self, _: &[&RabbitTag]) -> Result<(), SourceError> {
        Ok(())
    }
}

impl RabbitTag {
    async fn put(
        &self,
        auxiliary: AuxiliaryQueue,
        body: &[u8],
        properties: lapin::BasicProperties,
    ) -> Result<(), SourceError> {
        // A repeated settlement, because the acknowledgement failed. The first copy is sufficient.
        if self.copied.load(SeqCst) {
            return Ok(());
        }
        self.session.put(auxiliary, properties, body).await.map_err(|unsent| self.not_put(unsent))?;
        self.copied.store(true, SeqCst);
        Ok(())
    }

    fn not_put(&self, unsent: PublishFailure) -> SourceError {
        let transient = |text: &str| SourceError::new(SourceErrorKind::Transient, text);
        match unsent {
            PublishFailure::Unroutable => {
                transient("the queue for the copy was deleted; the next try declares it again")
            }
            PublishFailure::Nacked => transient("the broker rejected the copy"),
            PublishFailure::Broken { .. } if self.acker.poisoned() || !self.session.publishing.is_alive() => gone(),
            PublishFailure::Broken { error, .. } if is_final(&error) => SourceError::new(
                SourceErrorKind::Fatal,
                "cannot declare or write the queue for the copy; the cause names the difference or the missing right",
            )
            .with_cause(error),
            PublishFailure::Broken { error, .. } => transient("publishing the copy failed").with_cause(error),
        }
    }
}

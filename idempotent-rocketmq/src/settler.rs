//! Settling: a copy or a dead letter first, known to be stored; then the answer to the client.
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{Delivery, Settle, Settlement, SourceError, SourceErrorKind};

use crate::client::{Outbound, Unsent};
use crate::error::{failed, gone, transient};
use crate::tag::{Answer, RocketTag};

#[derive(Debug)]
pub(crate) struct Settler;

/// The last answer of a session waits this long for the client to tell the broker.
const TOLD: Duration = Duration::from_secs(3);

#[async_trait]
impl Settle<RocketTag> for Settler {
    async fn settle(&self, delivery: &Delivery, tag: &RocketTag, settlement: &Settlement) -> Result<(), SourceError> {
        if tag.is_answered() {
            return Ok(());
        }
        let (settings, marked, body) = (&tag.session.settings, &tag.marked, &delivery.body);
        match settlement {
            Settlement::Ack => {}
            Settlement::GiveBack => tag.put(tag.session.returned(marked, body, Duration::ZERO)).await?,
            Settlement::Retry(retry) => {
                let mut copy = tag.session.returned(marked, body, retry.after);
                copy.properties = marked.for_retry(retry);
                tag.put(copy).await?;
            }
            Settlement::DeadLetter(letter) => {
                let mut dead = tag.session.returned(marked, body, Duration::ZERO);
                dead.topic.clone_from(&settings.dead_topic);
                dead.properties = marked.for_dead_letter(letter, settings);
                tag.put(dead).await?;
            }
            // One that a later version adds is not known to be done.
            _ => return Err(SourceError::new(SourceErrorKind::Fatal, "this adapter does not know that settlement")),
        }
        let ends = &tag.session.ends;
        if !tag.answer(Answer::Done) {
            return Err(gone());
        }
        if ends.is_closing() && ends.all_answered() {
            // A process may end right behind this.
            let _ = tokio::time::timeout(TOLD, ends.over()).await;
        }
        Ok(())
    }

    async fn keep_alive(&self, _: &[&RocketTag]) -> Result<(), SourceError> {
        Ok(())
    }
}

impl RocketTag {
    async fn put(&self, copy: Outbound) -> Result<(), SourceError> {
        // Asked again because the answer failed: one copy is enough.
        if self.is_copied() {
            return Ok(());
        }
        if self.session.ends.is_over() {
            return Err(gone());
        }
        self.session.sender.send(copy).await.map_err(not_put)?;
        self.copied.store(true, SeqCst);
        Ok(())
    }
}

fn not_put(unsent: Unsent) -> SourceError {
    match unsent {
        Unsent::Weak(status) => transient(&format!("the broker has not kept the copy as it should: {status:?}")),
        Unsent::Ended => gone(),
        Unsent::Failed(error) => failed("the copy could not be stored; the cause says what is missing", error),
    }
}

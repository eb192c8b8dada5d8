//! A source that records the outcome of its deliveries, and whose process dies at some of them.
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use idempotent::mq::{
    Delivery, Received, Settle, Settlement, Source, SourceCapabilities, SourceError, SourceErrorKind,
};
use idempotent::{Identity, Key, Scene};
use idempotent_testkit::history::Kind as Event;

use super::flaw::Flaw;
use super::worker::bury_bare;
use crate::dice::Dice;
use crate::dying_store::die;
use crate::harness::DOOMED;
use crate::wire::{Dies, Message, News, Origin};
use crate::worker::HandlerContext;

/// The worker that receives the deliveries.
#[derive(Debug)]
pub(super) struct DeliveryWorker {
    pub(super) context: Arc<HandlerContext>,
    pub(super) namespace: String,
    pub(super) origin: Origin,
    pub(super) dice: Dice,
    /// True if the worker does not kill itself any more.
    pub(super) peace: AtomicBool,
    /// The kill points of the next runs, by key.
    pub(super) doomed: Mutex<HashMap<Key, Dies>>,
}

impl DeliveryWorker {
    pub(super) fn key(&self, number: u64) -> Option<Key> {
        Identity::new(Scene::Mq, "chaos", &number).key(&self.namespace).ok()
    }

    /// Returns the kill point of the key's next run.
    pub(super) fn doom_of(&self, key: &Key) -> Option<Dies> {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.origin.flaw == Some(flaw)
    }

    fn doom(&self, key: &Key) -> Option<Dies> {
        // A group needs seconds after each loss of a member.
        let rarity = if self.origin.kind.rebalances() { 5 } else { 1 };
        let doomed = !self.peace.load(Ordering::Relaxed) && self.dice.below(100 * rarity) < DOOMED;
        let dies = doomed.then(|| self.dice.pick(&Dies::ALL)).flatten()?;
        match dies {
            Dies::AtClaim | Dies::AtComplete => self.context.mortal.doom(key.clone(), dies),
            Dies::BeforeEffect | Dies::AfterEffect => {
                self.doomed.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), dies);
            }
            Dies::BeforeAck => return Some(dies),
        }
        None
    }

    fn note(&self, key: Option<&Key>, event: Event) {
        if let Some(key) = key {
            self.context.note(key.as_str(), event);
        }
    }
}

pub(super) struct RecordingSource<S> {
    pub(super) inner: S,
    pub(super) desk: Arc<DeliveryWorker>,
}

pub(super) struct Tag<T> {
    inner: T,
    /// The key, or `None` for an unreadable body.
    key: Option<Key>,
    /// Right before it is acknowledged.
    dies: bool,
    /// Long acknowledged.
    over: bool,
}

struct Settler<T> {
    inner: Arc<dyn Settle<T>>,
    desk: Arc<DeliveryWorker>,
}

#[async_trait]
impl<S: Source> Source for RecordingSource<S> {
    type Tag = Tag<S::Tag>;

    fn capabilities(&self) -> SourceCapabilities {
        self.inner.capabilities()
    }

    fn settler(&self) -> Arc<dyn Settle<Self::Tag>> {
        Arc::new(Settler { inner: self.inner.settler(), desk: self.desk.clone() })
    }

    async fn receive(&mut self, room: usize) -> Result<Received<Self::Tag>, SourceError> {
        let deliveries = match self.inner.receive(room).await? {
            Received::Deliveries(deliveries) => deliveries,
            Received::Revoked(areas) => {
                self.desk.context.tell(News::Revoked { partitions: areas.len() as u64 });
                return Ok(Received::Revoked(areas));
            }
            _ => return Err(SourceError::new(SourceErrorKind::Fatal, "not known here")),
        };
        let is_copy =
            |delivery: &Delivery| !delivery.redelivered && delivery.first_at.is_some() && delivery.attempt == Some(1);
        let deferred = deliveries.iter().filter(|(delivery, _)| is_copy(delivery)).count() as u64;
        self.desk.context.tell(News::Received { deferred });
        let mut told = Vec::new();
        for (delivery, inner) in deliveries {
            let message = serde_json::from_slice::<Message>(&delivery.body).ok();
            let key = message.and_then(|message| self.desk.key(message.key));
            let dies = key.as_ref().and_then(|key| self.desk.doom(key)).is_some();
            let over = self.desk.is(Flaw::AckBeforeRun);
            if over {
                self.desk.note(key.as_ref(), Event::Ack);
                // Where it fails, the delivery comes again.
                let _ = self.inner.settler().settle(&delivery, &inner, &Settlement::Ack).await;
            }
            told.push((delivery, Tag { inner, key, dies, over }));
        }
        Ok(Received::Deliveries(told))
    }

    async fn close(&mut self) {
        self.inner.close().await;
    }
}

#[async_trait]
impl<T: Send + Sync + 'static> Settle<Tag<T>> for Settler<T> {
    async fn settle(&self, delivery: &Delivery, tag: &Tag<T>, settlement: &Settlement) -> Result<(), SourceError> {
        let (desk, key) = (&self.desk, tag.key.as_ref());
        if tag.over {
            return Ok(());
        }
        let settlement = match settlement {
            Settlement::Retry(retry) if desk.is(Flaw::AckInFlight) && retry.reason == "in_flight" => &Settlement::Ack,
            Settlement::DeadLetter(_) if desk.is(Flaw::BareDeadLetter) => {
                let buried = bury_bare(&desk.origin, delivery).await;
                buried.map_err(|error| SourceError::new(SourceErrorKind::Transient, error.to_string()))?;
                desk.note(key, Event::DeadLettered);
                &Settlement::Ack
            }
            other => other,
        };
        if tag.dies && matches!(settlement, Settlement::Ack) {
            die();
        }
        match settlement {
            Settlement::Ack => {
                desk.note(key, Event::Ack);
                self.inner.settle(delivery, &tag.inner, settlement).await
            }
            Settlement::DeadLetter(_) => {
                self.inner.settle(delivery, &tag.inner, settlement).await?;
                desk.note(key, Event::DeadLettered);
                desk.note(key, Event::Ack);
                Ok(())
            }
            _ => {
                self.inner.settle(delivery, &tag.inner, settlement).await?;
                desk.note(key, Event::Nack);
                Ok(())
            }
        }
    }

    async fn keep_alive(&self, held: &[&Tag<T>]) -> Result<(), SourceError> {
        let held: Vec<&T> = held.iter().map(|tag| &tag.inner).collect();
        self.inner.keep_alive(&held).await
    }
}

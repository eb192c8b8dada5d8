//! The queue as a source of the consumer runtime.
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_core::StoreError;
use idempotent_mq::{
    DelaySupport, Delivery, Position, Received, Settle, Source, SourceCapabilities, SourceError, SourceErrorKind,
};
use tokio::task::JoinHandle;

use super::queue::DelayQueue;
use super::received::DelayDelivery;
use super::receiver::DelayReceiver;
use super::replies::source_error;
use super::settler::{DelaySettler, DelayTag};
use super::slot_calls::SlotBatch;

/// A source of messages from a [`DelayQueue`], for a [`Consumer`](idempotent_mq::Consumer) with annotated handlers.
///
/// The consumer counts its attempts on the message. Expired deliveries count separately, towards the limit of the
/// queue. A message that cannot be decoded becomes a dead letter without being delivered.
///
/// ```no_run
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// use idempotent_redis::{DelayQueue, DelaySource};
///
/// let queue = DelayQueue::connect("redis://localhost", "orders").await?;
/// let source = DelaySource::new(&queue);
/// # drop(source);
/// # Ok(())
/// # }
/// ```
pub struct DelaySource {
    receiver: DelayReceiver,
    settler: Arc<DelaySettler>,
    /// The pending poll. It outlives a cancelled `receive`, so that its messages are not lost.
    asking: Option<(u16, JoinHandle<Result<SlotBatch, StoreError>>)>,
}

impl DelaySource {
    /// Creates a source for this queue.
    #[must_use]
    pub fn new(queue: &DelayQueue) -> Self {
        Self { receiver: queue.receiver(), settler: Arc::new(DelaySettler(queue.clone())), asking: None }
    }

    async fn next(&mut self, room: usize) -> Result<Vec<DelayDelivery>, SourceError> {
        loop {
            let (slot, asked) = match &mut self.asking {
                Some((slot, asking)) => (*slot, asking.await),
                None => {
                    let slot = self.receiver.next().await;
                    let queue = self.receiver.queue().clone();
                    let asking = tokio::spawn(async move { queue.take_from(slot, room, true, &[]).await });
                    self.asking = Some((slot, asking));
                    continue;
                }
            };
            self.asking = None;
            let asked = asked.map_err(|_| stopped())?;
            self.receiver.record_batch(slot, &asked);
            let taken = asked.map_err(|error| source_error("taking", error))?.taken;
            if !taken.is_empty() {
                return Ok(taken);
            }
        }
    }
}

#[async_trait]
impl Source for DelaySource {
    type Tag = DelayTag;

    fn capabilities(&self) -> SourceCapabilities {
        let visibility = self.receiver.queue().0.settings.visibility;
        SourceCapabilities::new(DelaySupport::Any).keep_alive(visibility / 3).counts()
    }

    fn settler(&self) -> Arc<dyn Settle<DelayTag>> {
        self.settler.clone()
    }

    async fn receive(&mut self, room: usize) -> Result<Received<DelayTag>, SourceError> {
        let taken = match self.next(room).await {
            // The first call after a long idle time often finds its connection broken.
            Err(error) if error.kind() == SourceErrorKind::Transient => self.next(room).await?,
            taken => taken?,
        };
        let topic: Arc<str> = self.receiver.queue().topic().into();
        Ok(Received::Deliveries(taken.into_iter().map(|taken| delivery(&topic, taken)).collect()))
    }

    async fn close(&mut self) {
        let Some((_, asking)) = self.asking.take() else { return };
        if let Ok(Ok(batch)) = asking.await {
            for taken in batch.taken {
                // A message that cannot be returned is redelivered after the visibility timeout.
                let _ = self.settler.give_back(&taken.receipt).await;
            }
        }
    }
}

pub(crate) fn delivery(topic: &Arc<str>, taken: DelayDelivery) -> (Delivery, DelayTag) {
    let position = Position::of(topic.clone()).partition(u32::from(taken.slot)).offset(&taken.receipt.member);
    let mut delivery = Delivery::new(position, taken.body).id(taken.id);
    (delivery.business_key, delivery.headers) = (taken.business_key, taken.headers);
    (delivery.attempt, delivery.delivered) = (Some(taken.receipt.mark), Some(taken.delivered));
    delivery.redelivered = taken.delivered > 1;
    (delivery.first_at, delivery.deaths) = (Some(taken.first_at), taken.deaths);
    (delivery, DelayTag(taken.receipt))
}

fn stopped() -> SourceError {
    SourceError::new(SourceErrorKind::Transient, "taking: the runtime is shutting down")
}

impl fmt::Debug for DelaySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelaySource").field("queue", self.receiver.queue()).finish_non_exhaustive()
    }
}

//! A consumer's connection to a queue in memory.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use super::{MemoryQueue, Shared};
use crate::{
    DelaySupport, Delivery, Received, Settle, Settlement, Source, SourceCapabilities, SourceError, SourceErrorKind,
};

/// A consumer's connection to a [`MemoryQueue`].
#[derive(Debug)]
pub struct MemorySource {
    queue: MemoryQueue,
}

impl MemorySource {
    pub(super) fn new(queue: MemoryQueue) -> Self {
        Self { queue }
    }
}

/// A delivery of a [`MemoryQueue`]. The message of a tag that is dropped before its settlement is delivered again.
pub struct MemoryTag {
    number: u64,
    settled: AtomicBool,
    shared: Arc<Shared>,
}

impl fmt::Debug for MemoryTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryTag").field(&self.number).finish()
    }
}

impl Drop for MemoryTag {
    fn drop(&mut self) {
        if !*self.settled.get_mut() {
            self.shared.messages().give_back(self.number);
            self.shared.changed.notify_waiters();
        }
    }
}

#[async_trait]
impl Source for MemorySource {
    type Tag = MemoryTag;

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::new(DelaySupport::Any).counts()
    }

    fn settler(&self) -> Arc<dyn Settle<MemoryTag>> {
        Arc::new(self.queue.clone())
    }

    async fn receive(&mut self, room: usize) -> Result<Received<MemoryTag>, SourceError> {
        let MemoryQueue { shared, clock } = &self.queue;
        loop {
            // Before the look at the messages, so that no change is missed.
            let changed = shared.changed.notified();
            let (taken, next_due) = {
                let mut messages = shared.messages();
                let tag = |number| MemoryTag { number, settled: AtomicBool::new(false), shared: shared.clone() };
                (messages.take(clock.now(), room, tag), messages.next_due())
            };
            if !taken.is_empty() {
                return Ok(Received::Deliveries(taken));
            }
            match next_due {
                None => changed.await,
                Some(due) => tokio::select! {
                    () = changed => {}
                    () = clock.sleep_until(due) => {}
                },
            }
        }
    }

    /// Does nothing: the source holds no message that it has not returned.
    async fn close(&mut self) {}
}

#[async_trait]
impl Settle<MemoryTag> for MemoryQueue {
    async fn settle(&self, _: &Delivery, tag: &MemoryTag, settlement: &Settlement) -> Result<(), SourceError> {
        let now = self.clock.now();
        if self.change(|messages| messages.settle(now, tag.number, settlement)) {
            tag.settled.store(true, Ordering::Relaxed);
            return Ok(());
        }
        Err(SourceError::new(SourceErrorKind::Gone, "the message was settled, or is delivered again"))
    }

    async fn keep_alive(&self, _: &[&MemoryTag]) -> Result<(), SourceError> {
        Ok(())
    }
}

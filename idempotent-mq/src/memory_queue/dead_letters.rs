//! Redrive and removal of the dead letters of a queue in memory.
use async_trait::async_trait;

use super::MemoryQueue;
use crate::{DeadLetters, SourceError, SourceErrorKind, StoredLetter};

/// The dead letters of a [`MemoryQueue`], for [`Redrive`](crate::Redrive).
#[derive(Debug)]
pub struct MemoryDeadLetters {
    queue: MemoryQueue,
    /// The number of the last letter that `next` returned, or 0.
    at: u64,
}

impl MemoryDeadLetters {
    /// Returns the number of the letter that `next` returned last.
    fn taken(&self) -> Result<u64, SourceError> {
        let nothing = || SourceError::new(SourceErrorKind::Fatal, "no dead letter was read; call `next` first");
        (self.at > 0).then_some(self.at).ok_or_else(nothing)
    }

    /// Creates a handle that begins with the oldest letter.
    #[must_use]
    pub fn new(queue: &MemoryQueue) -> Self {
        Self { queue: queue.clone(), at: 0 }
    }
}

#[async_trait]
impl DeadLetters for MemoryDeadLetters {
    async fn count(&mut self) -> Result<u64, SourceError> {
        Ok(self.queue.shared.messages().dead_letters().len() as u64)
    }

    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        let next = self.queue.shared.messages().dead_after(self.at);
        Ok(next.map(|(number, (delivery, letter))| {
            self.at = number;
            StoredLetter::at(number, delivery, Some(letter))
        }))
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        let (now, number) = (self.queue.clock.now(), self.taken()?);
        Ok(self.queue.change(|messages| messages.put_back(now, number)))
    }

    async fn discard(&mut self) -> Result<bool, SourceError> {
        let number = self.taken()?;
        Ok(self.queue.change(|messages| messages.discard(number)))
    }
}

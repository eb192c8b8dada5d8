//! Redrive and removal of the dead letters of a queue in memory.
use async_trait::async_trait;

use super::MemoryQueue;
use crate::{LetterBox, SourceError, StoredLetter};

/// The dead letters of a [`MemoryQueue`], for [`Redrive`](crate::Redrive).
#[derive(Debug)]
pub struct MemoryDeadLetters {
    queue: MemoryQueue,
    /// The number of the letter that was read last, or 0.
    at: u64,
    listed: Option<u64>,
}

impl MemoryDeadLetters {
    /// Creates a handle that begins with the oldest letter.
    #[must_use]
    pub fn new(queue: &MemoryQueue) -> Self {
        Self { queue: queue.clone(), at: 0, listed: None }
    }
}

#[async_trait]
impl LetterBox for MemoryDeadLetters {
    type Letter = u64;

    fn listed(&mut self) -> &mut Option<u64> {
        &mut self.listed
    }

    async fn number(&mut self) -> Result<u64, SourceError> {
        Ok(self.queue.shared.messages().dead_letters().len() as u64)
    }

    async fn fetch(&mut self) -> Result<Option<(StoredLetter, u64)>, SourceError> {
        let next = self.queue.shared.messages().dead_after(self.at);
        Ok(next.map(|(number, (delivery, letter))| {
            self.at = number;
            (StoredLetter::at(number, delivery, Some(letter)), number)
        }))
    }

    async fn revive(&mut self, number: &u64) -> Result<bool, SourceError> {
        let now = self.queue.clock.now();
        Ok(self.queue.change(|messages| messages.put_back(now, *number)))
    }

    async fn remove(&mut self, number: &u64) -> Result<bool, SourceError> {
        Ok(self.queue.change(|messages| messages.discard(*number)))
    }
}

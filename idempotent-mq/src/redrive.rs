//! Redrive of dead letters.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{FencingToken, Key, Store};

use crate::{DeadLetter, Delivery, SourceError, SourceErrorKind};

/// The dead letters of a queue, implemented by an adapter for [`Redrive`] and for inspection.
#[async_trait]
pub trait DeadLetters: Send {
    /// Returns the number of dead letters. Call this method before the first [`next`](Self::next).
    ///
    /// # Errors
    /// Same as [`Source::receive`](crate::Source::receive).
    ///
    /// # Cancellation
    /// The call only reads, so a drop has no effect.
    async fn count(&mut self) -> Result<u64, SourceError>;

    /// Returns the next dead letter, from the oldest on, or `None` at the end.
    ///
    /// The first part is the delivery as a consumer would receive it. The second part is the stored data of the dead letter, or
    /// `None` if neither a consumer nor the broker stored a reason.
    ///
    /// A letter that is not put back stays among the dead letters. Others can read the letter again when `self` is dropped, or
    /// earlier.
    ///
    /// # Errors
    /// Same as [`Source::receive`](crate::Source::receive). Later calls may return earlier letters again.
    ///
    /// # Cancellation
    /// One letter may be skipped.
    async fn next(&mut self) -> Result<Option<(Delivery, Option<DeadLetter>)>, SourceError>;

    /// Puts the letter that `next` returned last back into its queue, with unchanged body and headers, including those of the
    /// adapter. Returns false if the letter is gone because another operator put it back.
    ///
    /// The adapter removes the letter only after the queue has confirmed the message. The message is then a first attempt with
    /// an increased [`deaths`](Delivery::deaths).
    ///
    /// # Errors
    /// The letter stays unchanged. If the queue did not confirm, the message may be in both places, with one id.
    ///
    /// # Cancellation
    /// The message is in its queue, among the dead letters, or in both.
    async fn put_back(&mut self) -> Result<bool, SourceError>;
}

/// A redrive of dead letters into their queue, from the oldest on.
///
/// A redrive puts back at most as many letters as it found at its start, so a message that fails again is not put back twice. It
/// stops at the first error.
///
/// A key that is dead or failed permanently never runs again: such a message would be dead-lettered at once.
/// [`letting_go`](Self::letting_go) makes the key claimable before its letter is put back.
///
/// The rule applies to the original key of the message. A Redis Streams entry without its own message id gets a new entry id
/// when it is put back. With [`KeyFrom::message_id`](crate::KeyFrom::message_id), the new entry id is a new key. The message then
/// runs again, although its old key is dead. Give such messages an id, or take the key from the body.
#[derive(Clone)]
#[must_use]
pub struct Redrive {
    limit: u64,
    store: Option<Arc<dyn Store>>,
}

/// The result of a redrive.
#[derive(Debug, Default)]
#[non_exhaustive]
#[must_use]
pub struct RedriveSummary {
    /// The number of dead letters that were put back.
    pub put_back: u64,
    /// The error that ended the redrive early. The letter in question and all later letters stay.
    pub failed: Option<SourceError>,
}

/// The time for which the store remembers a key after its release.
const MEMORY: Duration = Duration::from_secs(3600);

impl Default for Redrive {
    fn default() -> Self {
        Self::new()
    }
}

impl Redrive {
    /// Creates a redrive of all dead letters.
    pub fn new() -> Self {
        Self { limit: u64::MAX, store: None }
    }

    /// Limits the number of letters.
    ///
    /// # Default
    /// No limit
    pub fn limit(mut self, letters: u64) -> Self {
        self.limit = letters;
        self
    }

    /// Makes the key of each letter claimable in the store of its consumers, before the letter is put back. A key that was
    /// granted again in the meantime stays unchanged.
    ///
    /// # Default
    /// Keys stay unchanged
    pub fn letting_go(mut self, store: impl Store + 'static) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Runs the redrive.
    ///
    /// # Cancellation
    /// Each letter is in its queue or among the dead letters. The current one may be in both.
    pub async fn run(&self, letters: &mut dyn DeadLetters) -> RedriveSummary {
        let mut redriven = RedriveSummary::default();
        redriven.failed = self.put_back(letters, &mut redriven.put_back).await.err();
        redriven
    }

    async fn put_back(&self, letters: &mut dyn DeadLetters, done: &mut u64) -> Result<(), SourceError> {
        let there = letters.count().await?;
        for _ in 0..there {
            if *done == self.limit {
                break;
            }
            let Some((_, letter)) = letters.next().await? else { break };
            if let Some((store, key)) = self.store.as_ref().zip(letter.as_ref().and_then(DeadLetter::key)) {
                let_go(store, key).await?;
            }
            *done += u64::from(letters.put_back().await?);
        }
        Ok(())
    }
}

async fn let_go(store: &Arc<dyn Store>, (key, fencing): (Key, FencingToken)) -> Result<(), SourceError> {
    let admin = store.capabilities().admin.ok_or_else(|| {
        SourceError::new(
            SourceErrorKind::Fatal,
            "the store cannot release a key, because it has no admin capability; no letter of the key was put back",
        )
    })?;
    // `Lost` means that the key has changed since: removed, released, or granted again.
    let forgotten = admin.forget(&key, fencing, false, MEMORY).await;
    forgotten.map(drop).map_err(|error| {
        SourceError::new(SourceErrorKind::Transient, "the store failed to release a key").with_cause(error)
    })
}

impl DeadLetter {
    /// Returns the key that failed and the fencing token of its last run, from the [`id`](Self::id).
    #[must_use]
    pub fn key(&self) -> Option<(Key, FencingToken)> {
        let (key, fencing) = self.id.as_deref()?.rsplit_once(':')?;
        Some((Key::from_text(key)?, FencingToken(fencing.parse().ok()?)))
    }
}

impl fmt::Debug for Redrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redrive").field("limit", &self.limit).field("lets_go", &self.store.is_some()).finish()
    }
}

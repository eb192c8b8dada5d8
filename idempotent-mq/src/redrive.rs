//! Dead letters, put back.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{FencingToken, Key, Store};

use crate::{DeadLetter, Delivery, SourceError, SourceErrorKind};

/// Where the dead letters of a queue lie: what an adapter implements, for [`Redrive`] and for whoever looks at them.
#[async_trait]
pub trait DeadLetters: Send {
    /// How many lie there, before the first [`next`](Self::next).
    ///
    /// # Errors
    /// As of [`Source::receive`](crate::Source::receive).
    ///
    /// # Cancellation
    /// Nothing has happened.
    async fn count(&mut self) -> Result<u64, SourceError>;

    /// The next one, beginning with the oldest: as a consumer would read it, and what was left on it; `None` for the
    /// latter where neither a consumer nor the broker says why it was dead-lettered. At the end `None`.
    ///
    /// One that is not put back lies where it lay: for others again once `self` is dropped, at the latest.
    ///
    /// # Errors
    /// As of [`Source::receive`](crate::Source::receive). What was brought before may come again.
    ///
    /// # Cancellation
    /// One may have been passed over.
    async fn next(&mut self) -> Result<Option<(Delivery, Option<DeadLetter>)>, SourceError>;

    /// Puts the one back into its queue that `next` brought last: body and headers as they lie there, the adapter's marks
    /// included. It is taken away once the queue is known to have it, never before: then it is a first attempt that has died.
    /// `false` if it lies there no more: somebody else has put it back.
    ///
    /// # Errors
    /// It lies where it lay, unchanged. Where nobody knows whether the queue has it, it may be in both, with one id.
    ///
    /// # Cancellation
    /// It is in its queue, or lies where it lay, or both.
    async fn put_back(&mut self) -> Result<bool, SourceError>;
}

/// Puts dead letters back into their queue, the oldest first: no more than lay there when it began, so that one which
/// dies again is not put back twice. It ends with the first that fails.
///
/// A key that is dead or has failed for good is not run again, whatever comes for it: such a message would be put aside
/// at once, with one death more. [`letting_go`](Self::letting_go) makes it claimable before its letter is put back.
///
/// This rule applies to the original key of the message. A Redis Streams entry without its own message id gets a new entry id
/// when it is put back. With [`KeyFrom::message_id`](crate::KeyFrom::message_id), the new entry id is a new key. The message then
/// runs again, although its old key is dead. Give such messages an id, or take the key from the body.
#[derive(Clone)]
#[must_use]
pub struct Redrive {
    limit: u64,
    store: Option<Arc<dyn Store>>,
}

/// What was put back, and what went wrong.
#[derive(Debug, Default)]
#[non_exhaustive]
#[must_use]
pub struct RedriveSummary {
    /// Dead letters that are in their queue again.
    pub put_back: u64,
    /// Why it ended early. The letter it is about lies where it lay; so do those behind it.
    pub failed: Option<SourceError>,
}

/// How long a key that was let go is remembered to have been there.
const MEMORY: Duration = Duration::from_secs(3600);

impl Default for Redrive {
    fn default() -> Self {
        Self::new()
    }
}

impl Redrive {
    /// Of all that lie there.
    pub fn new() -> Self {
        Self { limit: u64::MAX, store: None }
    }

    /// Of no more than so many.
    ///
    /// # Default
    /// No limit
    pub fn limit(mut self, letters: u64) -> Self {
        self.limit = letters;
        self
    }

    /// Makes the key that a letter tells of claimable again first, in the store of its consumers. One that was granted
    /// again since then is left alone.
    ///
    /// # Default
    /// Keys stay as they are
    pub fn letting_go(mut self, store: impl Store + 'static) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Does it.
    ///
    /// # Cancellation
    /// Each letter is in its queue or where it lay; the one under way perhaps in both.
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
        SourceError::new(SourceErrorKind::Fatal, "this store cannot let a key go: nothing was put back for it")
    })?;
    // Lost means that it is not as the letter says any more: gone, let go already, or granted again.
    let forgotten = admin.forget(&key, fencing, false, MEMORY).await;
    forgotten.map(drop).map_err(|error| {
        SourceError::new(SourceErrorKind::Transient, "the store could not let a key go").with_cause(error)
    })
}

impl DeadLetter {
    /// The key that failed and the number of its last run, as its [`id`](Self::id) says.
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

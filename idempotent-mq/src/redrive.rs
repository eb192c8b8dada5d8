//! Redrive and removal of dead letters.
use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::__private::catch_panic;
use idempotent_core::{FencingToken, Key, Settled, Store};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::warn;

use crate::{DeadLetter, DeadLetters, LetterId, SourceError, SourceErrorKind, StoredLetter};

/// A redrive of dead letters into their queue, from the oldest on.
///
/// A redrive puts back at most as many letters as it found at its start, so a message that fails again is not put back twice. It
/// passes by a letter that is [refused](SourceErrorKind::Refused), and stops at the first other error.
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
    select: Option<Arc<Select>>,
    rate: Option<NonZeroU32>,
    is_dry_run: bool,
    discards: bool,
    stops: Vec<Arc<Stop>>,
    observer: Option<Arc<Observe>>,
}

type Select = dyn Fn(&StoredLetter) -> bool + Send + Sync;
type Stop = dyn Fn() -> bool + Send + Sync;
type Observe = dyn Fn(&RedriveStep<'_>) + Send + Sync;

/// The result of a redrive.
#[derive(Debug, Default)]
#[non_exhaustive]
#[must_use]
pub struct RedriveSummary {
    /// The number of dead letters that were put back. After a [dry run](Redrive::dry_run), the number that would be.
    pub put_back: u64,
    /// The number of dead letters that were removed, or would be, by a redrive that [discards](Redrive::discarding).
    pub discarded: u64,
    /// The number of letters that [`only`](Redrive::only) did not select.
    pub skipped: u64,
    /// The number of selected letters that stay because they cannot be put back, or removed by a redrive that discards. An
    /// example is a letter whose queue is unknown. The log names each with the reason.
    pub passed_by: u64,
    /// The number of selected letters that another operator had put back or removed.
    pub gone: u64,
    /// The number of letters that were counted at the start and could not be read. Another reader holds them, or another operator
    /// has put them back: close the other reader, and repeat the redrive.
    pub unread: u64,
    /// True if [`stop_if`](Redrive::stop_if) ended the redrive early.
    pub is_stopped: bool,
    /// The error that ended the redrive early. The letter in question and all later letters stay.
    pub failed: Option<SourceError>,
}

/// A selected letter and the result of its redrive, for [`Redrive::on_each`].
#[derive(Debug)]
#[non_exhaustive]
pub struct RedriveStep<'a> {
    /// The letter.
    pub letter: &'a StoredLetter,
    /// The answer of the store that was asked to let the key go.
    pub key: Option<Settled>,
    /// The result.
    pub result: RedriveResult<'a>,
}

/// The result of the redrive of one letter.
#[derive(Debug)]
#[non_exhaustive]
pub enum RedriveResult<'a> {
    /// The message is in its queue.
    PutBack,
    /// A dry run would put the letter back.
    WouldPutBack,
    /// The letter was removed.
    Discarded,
    /// A dry run would remove the letter.
    WouldDiscard,
    /// Another operator had put the letter back or removed it.
    Gone,
    /// This letter cannot be put back, or removed by a redrive that discards. It stays, and the redrive goes on.
    PassedBy(&'a SourceError),
    /// The letter was neither put back nor removed. The redrive ends.
    Failed(&'a SourceError),
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
        Self {
            limit: u64::MAX,
            store: None,
            select: None,
            rate: None,
            is_dry_run: false,
            discards: false,
            stops: Vec::new(),
            observer: None,
        }
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

    /// Sets a selection of letters. The others stay among the dead letters and do not count towards the limit. If the function panics, the
    /// letter is not selected.
    ///
    /// # Default
    /// All letters
    pub fn only(mut self, select: impl Fn(&StoredLetter) -> bool + Send + Sync + 'static) -> Self {
        self.select = Some(Arc::new(select));
        self
    }

    /// Selects exactly the letters with these ids, as [`only`](Self::only).
    pub fn named(self, ids: impl IntoIterator<Item = LetterId>) -> Self {
        let ids: HashSet<_> = ids.into_iter().collect();
        self.only(move |letter| ids.contains(&letter.id))
    }

    /// Limits the number of letters per second, so that the consumers are not flooded.
    ///
    /// # Default
    /// No limit
    pub fn rate(mut self, per_second: NonZeroU32) -> Self {
        self.rate = Some(per_second);
        self
    }

    /// Makes the redrive a dry run: it reads and selects letters, and changes neither a letter nor a key.
    pub fn dry_run(mut self) -> Self {
        self.is_dry_run = true;
        self
    }

    /// Removes each selected letter for good, instead of putting it back. The keys of the letters stay unchanged, even after
    /// [`letting_go`](Self::letting_go).
    pub fn discarding(mut self) -> Self {
        self.discards = true;
        self
    }

    /// Adds a function that ends the redrive before its next letter once the function returns true, or panics.
    ///
    /// # Default
    /// The redrive ends after its last letter
    pub fn stop_if(mut self, stop: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stops.push(Arc::new(stop));
        self
    }

    /// Sets a function that observes the result of each selected letter. A panic of the function is logged, and the redrive goes on.
    ///
    /// # Default
    /// None
    pub fn on_each(mut self, observe: impl Fn(&RedriveStep<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observe));
        self
    }

    /// Runs the redrive.
    ///
    /// # Cancellation
    /// Each letter is in its queue or among the dead letters. The current one may be in both.
    pub async fn run(&self, letters: &mut dyn DeadLetters) -> RedriveSummary {
        let mut summary = RedriveSummary::default();
        summary.failed = self.run_each(letters, &mut summary).await.err();
        if summary.unread > 0 {
            warn!(target: "idempotent", unread = summary.unread,
                "redrive: counted letters could not be read; another reader holds them: close it, and repeat the redrive");
        }
        summary
    }

    async fn run_each(&self, letters: &mut dyn DeadLetters, summary: &mut RedriveSummary) -> Result<(), SourceError> {
        let there = letters.count().await?;
        let mut pace = self.rate.filter(|_| !self.is_dry_run).map(pace);
        for read in 0..there {
            if summary.put_back + summary.discarded == self.limit {
                break;
            }
            if self.stops() {
                summary.is_stopped = true;
                break;
            }
            let Some(letter) = letters.next().await? else {
                summary.unread = there - read;
                break;
            };
            let selects = |select: &Arc<Select>| catch_panic("Redrive::only", || select(&letter)).unwrap_or_default();
            if self.select.as_ref().is_some_and(|select| !selects(select)) {
                summary.skipped += 1;
                continue;
            }
            if let Some(pace) = &mut pace {
                pace.tick().await;
                if self.stops() {
                    summary.is_stopped = true;
                    break;
                }
            }
            let mut key = None;
            let done = match (self.is_dry_run, self.discards) {
                (true, _) => Ok(true),
                (false, true) => letters.discard().await,
                (false, false) => self.put_back(letters, letter.letter.as_ref(), &mut key).await,
            };
            let result = match (&done, self.is_dry_run, self.discards) {
                (Ok(true), true, true) => RedriveResult::WouldDiscard,
                (Ok(true), true, false) => RedriveResult::WouldPutBack,
                (Ok(true), false, true) => RedriveResult::Discarded,
                (Ok(true), false, false) => RedriveResult::PutBack,
                (Ok(false), ..) => RedriveResult::Gone,
                (Err(error), ..) if error.kind() == SourceErrorKind::Refused => RedriveResult::PassedBy(error),
                (Err(error), ..) => RedriveResult::Failed(error),
            };
            if let Some(observe) = &self.observer {
                catch_panic("Redrive::on_each", || observe(&RedriveStep { letter: &letter, key, result }));
            }
            let count = match (done, self.discards) {
                (Err(refused), _) if refused.kind() == SourceErrorKind::Refused => {
                    let error = &refused as &(dyn std::error::Error + 'static);
                    warn!(target: "idempotent", letter = %letter.id, error, "redrive: a letter is passed by and stays");
                    &mut summary.passed_by
                }
                (Err(failed), _) => return Err(failed),
                (Ok(false), _) => &mut summary.gone,
                (Ok(true), true) => &mut summary.discarded,
                (Ok(true), false) => &mut summary.put_back,
            };
            *count += 1;
        }
        Ok(())
    }

    fn stops(&self) -> bool {
        self.stops.iter().any(|stop| catch_panic("Redrive::stop_if", || stop()).unwrap_or(true))
    }

    /// Lets the key of a letter go, if the redrive has a store, and puts the letter back.
    async fn put_back(
        &self,
        letters: &mut dyn DeadLetters,
        letter: Option<&DeadLetter>,
        let_go: &mut Option<Settled>,
    ) -> Result<bool, SourceError> {
        if let Some((store, key)) = self.store.as_ref().zip(letter.and_then(DeadLetter::key)) {
            *let_go = Some(forget(store, key).await?);
        }
        letters.put_back().await
    }
}

/// Returns the interval between two letters. The first tick is due at once.
fn pace(per_second: NonZeroU32) -> Interval {
    let mut pace = interval(Duration::from_secs(1) / per_second.get());
    // After a slow letter, the next ones are not faster.
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

async fn forget(store: &Arc<dyn Store>, (key, fencing): (Key, FencingToken)) -> Result<Settled, SourceError> {
    let admin = store.capabilities().admin.ok_or_else(|| {
        SourceError::new(
            SourceErrorKind::Fatal,
            "the store cannot release a key, because it has no admin capability; no letter of the key was put back",
        )
    })?;
    // `Lost` means that the key has changed since: removed, released, or granted again.
    let forgotten = admin.forget(&key, fencing, false, MEMORY).await;
    forgotten.map_err(|error| {
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
        f.debug_struct("Redrive")
            .field("limit", &self.limit)
            .field("lets_go", &self.store.is_some())
            .field("rate", &self.rate)
            .field("is_dry_run", &self.is_dry_run)
            .field("discards", &self.discards)
            .finish_non_exhaustive()
    }
}

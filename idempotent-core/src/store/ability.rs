//! What a store may be able to do beyond [`Store`](super::Store): one trait each.
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Claim, ClaimRequest, Completion, Fencing, Held, Journaled, Key, Micros, Record, Settled, StepRecord, StoreError,
    Transact,
};

/// The abilities of a store, each as `Option<&dyn …>`.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Abilities<'a> {
    /// Several requests in one trip.
    pub batch: Option<&'a dyn Batch>,
    /// Tells when a key is settled.
    pub watch: Option<&'a dyn Watch>,
    /// Lists records.
    pub browse: Option<&'a dyn Browse>,
    /// Removes records past their time.
    pub purge: Option<&'a dyn Purge>,
    /// An operator's repairs.
    pub admin: Option<&'a dyn Admin>,
    /// Shows a record with the store's own time.
    pub inspect: Option<&'a dyn Inspect>,
    /// Keeps the steps of runs.
    pub journal: Option<&'a dyn Journal>,
    /// Keeps the order tables of streams.
    pub order: Option<&'a dyn Order>,
    /// Begins transactions that runs are claimed and completed in.
    pub transact: Option<&'a dyn Transact>,
    /// Opens connections of their own for renewals.
    pub renewal: Option<&'a dyn Renewal>,
}

impl<'a> Abilities<'a> {
    /// None at all.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds [`Batch`].
    #[must_use]
    pub fn with_batch(mut self, batch: &'a dyn Batch) -> Self {
        self.batch = Some(batch);
        self
    }

    /// Adds [`Watch`].
    #[must_use]
    pub fn with_watch(mut self, watch: &'a dyn Watch) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Adds [`Browse`].
    #[must_use]
    pub fn with_browse(mut self, browse: &'a dyn Browse) -> Self {
        self.browse = Some(browse);
        self
    }

    /// Adds [`Purge`].
    #[must_use]
    pub fn with_purge(mut self, purge: &'a dyn Purge) -> Self {
        self.purge = Some(purge);
        self
    }

    /// Adds [`Admin`].
    #[must_use]
    pub fn with_admin(mut self, admin: &'a dyn Admin) -> Self {
        self.admin = Some(admin);
        self
    }

    /// Adds [`Transact`].
    #[must_use]
    pub fn with_transact(mut self, transact: &'a dyn Transact) -> Self {
        self.transact = Some(transact);
        self
    }

    /// Adds [`Inspect`].
    #[must_use]
    pub fn with_inspect(mut self, inspect: &'a dyn Inspect) -> Self {
        self.inspect = Some(inspect);
        self
    }

    /// Adds [`Journal`].
    #[must_use]
    pub fn with_journal(mut self, journal: &'a dyn Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Adds [`Renewal`].
    #[must_use]
    pub fn with_renewal(mut self, renewal: &'a dyn Renewal) -> Self {
        self.renewal = Some(renewal);
        self
    }

    /// Adds [`Order`].
    #[must_use]
    pub fn with_order(mut self, order: &'a dyn Order) -> Self {
        self.order = Some(order);
        self
    }
}

/// Connections of their own for renewals.
///
/// A handler that blocks its thread also stops the I/O and the timers of its runtime. An executor with a
/// [real-time](crate::Clock::is_real_time) clock therefore renews the leases of a store with this ability on a thread of
/// its own, through the store that [`renewal_store`](Self::renewal_store) returns. Without this ability a handler that
/// blocks for longer than its lease loses the lease, and another worker runs the same key.
#[async_trait]
pub trait Renewal: fmt::Debug + Send + Sync {
    /// Returns a store for the same records, whose calls need no other runtime than the one that polls this future: it
    /// has connections of its own. The executor asks for it when this store has failed to renew, or has not answered within
    /// half a heartbeat. It keeps the answer until that fails, too, and calls only its [`renew`](super::Store::renew) and
    /// [`renew_all`](Batch::renew_all).
    ///
    /// # Errors
    /// No connection was made. The executor asks again at its next renewal.
    ///
    /// # Cancellation
    /// A drop leaves nothing behind.
    async fn renewal_store(&self) -> Result<Arc<dyn super::Store>, StoreError>;
}

/// Several requests in one trip. Each is decided as if it had come alone; answers stand in the order asked.
///
/// # Laws
/// `a_batch_answers_as_if_each_request_had_come_alone`, `a_batch_refuses_only_what_it_cannot_read`.
#[async_trait]
pub trait Batch: fmt::Debug + Send + Sync {
    /// As [`Store::claim`](super::Store::claim) for each.
    ///
    /// # Errors
    /// One for each request. A failed trip fails all of them with the same kind.
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>>;

    /// As [`Store::renew`](super::Store::renew) for each.
    ///
    /// # Errors
    /// As [`claim_all`](Self::claim_all).
    async fn renew_all(&self, held: &[(Held, Duration)]) -> Vec<Result<Settled, StoreError>>;

    /// As [`Store::complete`](super::Store::complete) for each.
    ///
    /// # Errors
    /// As [`claim_all`](Self::claim_all).
    async fn complete_all(&self, done: &[(Held, Completion)]) -> Vec<Result<Settled, StoreError>>;
}

/// Ends when a key may have been settled. Waiting begins when it is made, not when it is first polled.
pub type Watching = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Tells waiters when a key is completed or released, by whichever process.
///
/// # Laws
/// `watchers_are_woken_by_completion_and_release`, `watchers_are_woken_over_another_connection`.
pub trait Watch: fmt::Debug + Send + Sync {
    /// Ends at the next completion or release of `key`, or for no reason: ask the store afterwards. A run that
    /// dies without a word wakes nobody; its lease does.
    ///
    /// # Cancellation
    /// Dropping it stops waiting.
    fn watch(&self, key: &Key) -> Watching;
}

/// A record with the key it lies under.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// The record; past its time it is not listed.
    pub record: Record,
}

/// Some entries, and where to go on.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// In no particular order.
    pub entries: Vec<Entry>,
    /// Give this to the next call; `None` at the end.
    pub next: Option<u128>,
}

/// Lists records, for operators.
///
/// # Laws
/// `browsing_lists_each_live_key_once`, `browsing_leaves_what_it_cannot_read`.
#[async_trait]
pub trait Browse: fmt::Debug + Send + Sync {
    /// At most `limit` entries (capped at 10,000) behind `after`. Each key that is there during the whole
    /// listing is listed once.
    ///
    /// # Errors
    /// As [`Store::peek`](super::Store::peek).
    async fn browse(&self, after: Option<u128>, limit: usize) -> Result<Page, StoreError>;
}

/// Removes records past their time. A store whose claim is one atomic step goes by [`protocol::purgeable`](crate::protocol::purgeable),
/// a [`CasBackend`](crate::CasBackend) by [`protocol::removable`](crate::protocol::removable).
///
/// # Laws
/// `a_purge_is_bounded_and_harmless`, `a_purge_leaves_what_it_cannot_read`,
/// `fencing_rises_over_purge_within_one_instant`.
#[async_trait]
pub trait Purge: fmt::Debug + Send + Sync {
    /// Removes at most `at_most` of them; says how many. Never removes a record that still counts. Where steps lie beside
    /// the records, those of at most `at_most` records that are gone go too; they are not counted.
    ///
    /// # Errors
    /// As [`Store::release`](super::Store::release).
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError>;
}

/// An operator's repairs. Whoever calls this writes the audit line.
///
/// # Laws
/// `a_settled_key_can_be_forgotten_by_its_number_only`, `a_held_key_is_forgotten_by_force_only`,
/// `fencing_rises_over_forgetting`.
#[async_trait]
pub trait Admin: fmt::Debug + Send + Sync {
    /// Makes a settled key claimable again, a consuming one only by `force`; the fencing number must be the one
    /// the operator looked at: [`protocol::forget`](crate::protocol::forget).
    ///
    /// # Errors
    /// As [`Store::release`](super::Store::release).
    async fn forget(&self, key: &Key, expected: Fencing, force: bool, memory: Duration) -> Result<Settled, StoreError>;
}

/// Shows a record together with the store's own time: only then can be said how much is left of a lease, a delay or a
/// retention, whatever the clock of the one who asks.
///
/// # Laws
/// `abilities_that_are_reported_work`.
#[async_trait]
pub trait Inspect: fmt::Debug + Send + Sync {
    /// As [`Store::peek`](super::Store::peek), and the time it was read at: record and time of one moment. `None` past
    /// the record's time.
    ///
    /// # Errors
    /// As [`Store::peek`](super::Store::peek).
    ///
    /// # Cancellation
    /// Reads only: nothing is left behind.
    async fn inspect(&self, key: &Key) -> Result<Option<Inspected>, StoreError>;
}

/// An answer of [`Inspect::inspect`].
#[derive(Clone, Debug, PartialEq)]
pub struct Inspected {
    /// The record.
    pub record: Record,
    /// The store's time.
    pub now: Micros,
}

/// Keeps the steps of runs beside their records: [`step`](crate::step()).
///
/// Steps are noted under the key and the beginning of its record ([`Record::first_seen`]), so that those of a record that
/// is gone are not taken for those of the next one: [`protocol::begun`](crate::protocol::begun) and
/// [`protocol::note`](crate::protocol::note) are the same as pure functions. They go with their record, at the latest when
/// that is purged.
///
/// # Laws
/// `steps_come_back_as_they_were_noted`, `a_step_only_goes_on`, `nobody_but_the_owner_reads_or_notes_steps`,
/// `a_superseded_owner_notes_no_step`, `steps_outlive_release_and_takeover`, `a_record_that_begins_anew_has_no_steps`,
/// `steps_of_two_keys_are_kept_apart`, `of_a_late_note_and_a_takeover_nothing_noted_is_missed`.
#[async_trait]
pub trait Journal: fmt::Debug + Send + Sync {
    /// The steps noted under the key since its record began, by this owner or those before it. `keep` is how long they
    /// are needed from now on at the least, for a store whose entries end by themselves.
    ///
    /// # Errors
    /// As [`Store::peek`](super::Store::peek).
    ///
    /// # Cancellation
    /// Reads only: nothing is left behind.
    async fn steps(&self, held: &Held, keep: Duration) -> Result<Journaled, StoreError>;

    /// Notes one step, guarded as a completion is: one atomic step with the look at owner, number and state. Said twice
    /// it is meant once. `keep` is as for [`steps`](Self::steps).
    ///
    /// # Errors
    /// As [`Store::complete`](super::Store::complete).
    ///
    /// # Cancellation
    /// As [`Store::complete`](super::Store::complete).
    async fn note(&self, held: &Held, step: &StepRecord, keep: Duration) -> Result<Settled, StoreError>;
}

/// Keeps the order table of each stream: [`Call::sequence`](crate::Call::sequence).
///
/// A table is one value to the store: bytes that the executor reads, changes and puts back, if nobody else has meanwhile.
/// What stands in them is the executor's. They lie beside the records, under keys that no identity can name, and a listing
/// does not show them.
///
/// # Laws
/// `a_stream_nobody_spoke_of_has_no_line`, `a_line_is_put_back_only_by_who_saw_it_as_it_is`,
/// `a_line_of_any_bytes_comes_back_as_it_was`, `lines_of_two_streams_are_kept_apart`, `a_line_is_no_record`,
/// `a_line_outlives_a_purge_until_its_time_is_over`, `of_racing_changes_of_one_line_none_is_lost`.
#[async_trait]
pub trait Order: fmt::Debug + Send + Sync {
    /// The stream's line, and the store's time at which it was read.
    ///
    /// # Errors
    /// As [`Store::peek`](super::Store::peek).
    ///
    /// # Cancellation
    /// Reads only: nothing is left behind.
    async fn line(&self, stream: &Key) -> Result<Lined, StoreError>;

    /// Puts `next` in the place of `seen`, if that is still what is there: one atomic step. `None` is no line. Says
    /// whether it did. It is to be kept for `keep` from now on at the least ([`Policy::FOREVER`](crate::Policy::FOREVER):
    /// for ever), and may go then.
    ///
    /// # Errors
    /// As [`Store::complete`](super::Store::complete).
    ///
    /// # Cancellation
    /// It is put back or not.
    async fn redraw(&self, stream: &Key, seen: Option<&[u8]>, next: &[u8], keep: Duration) -> Result<bool, StoreError>;
}

/// An answer of [`Order::line`].
#[derive(Clone, Debug, PartialEq)]
pub struct Lined {
    /// The line, if there is one.
    pub line: Option<Arc<[u8]>>,
    /// The store's time.
    pub now: Micros,
}

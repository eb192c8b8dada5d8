//! The optional capabilities of a [`Store`](super::Store), with one trait for each.
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Health, Search, StoreNodes};
use crate::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Key, Record, Settled, StepRecord, StoreError,
    StoredSteps, Timestamp, Transactional,
};

/// The optional capabilities of a store, each as `Option<&dyn …>`.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StoreCapabilities<'a> {
    /// Sends several requests in one round trip.
    pub batch: Option<&'a dyn Batch>,
    /// Notifies waiters when a key is settled.
    pub watch: Option<&'a dyn Watch>,
    /// Searches records.
    pub search: Option<&'a dyn Search>,
    /// Removes expired records.
    pub purge: Option<&'a dyn Purge>,
    /// Lets an operator repair records.
    pub admin: Option<&'a dyn Admin>,
    /// Reads a record together with the store's time.
    pub inspect: Option<&'a dyn Inspect>,
    /// Stores the steps of runs.
    pub steps: Option<&'a dyn StepStore>,
    /// Stores the order tables of streams.
    pub order: Option<&'a dyn OrderStore>,
    /// Lists the order tables of streams.
    pub browse_order: Option<&'a dyn BrowseOrder>,
    /// Begins transactions in which runs are claimed and completed.
    pub transact: Option<&'a dyn Transactional>,
    /// Checks the servers.
    pub health: Option<&'a dyn Health>,
    /// Opens separate connections for renewals.
    pub renewal: Option<&'a dyn Renewal>,
    /// Maps keys to the nodes of the store.
    pub nodes: Option<&'a dyn StoreNodes>,
}

impl<'a> StoreCapabilities<'a> {
    /// Creates an empty set of capabilities.
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

    /// Adds [`Search`].
    #[must_use]
    pub fn with_search(mut self, search: &'a dyn Search) -> Self {
        self.search = Some(search);
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

    /// Adds [`Transactional`].
    #[must_use]
    pub fn with_transact(mut self, transact: &'a dyn Transactional) -> Self {
        self.transact = Some(transact);
        self
    }

    /// Adds [`Inspect`].
    #[must_use]
    pub fn with_inspect(mut self, inspect: &'a dyn Inspect) -> Self {
        self.inspect = Some(inspect);
        self
    }

    /// Adds [`StepStore`].
    #[must_use]
    pub fn with_steps(mut self, steps: &'a dyn StepStore) -> Self {
        self.steps = Some(steps);
        self
    }

    /// Adds [`Renewal`].
    #[must_use]
    pub fn with_renewal(mut self, renewal: &'a dyn Renewal) -> Self {
        self.renewal = Some(renewal);
        self
    }

    /// Adds [`StoreNodes`].
    #[must_use]
    pub fn with_nodes(mut self, nodes: &'a dyn StoreNodes) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Adds [`Health`].
    #[must_use]
    pub fn with_health(mut self, health: &'a dyn Health) -> Self {
        self.health = Some(health);
        self
    }

    /// Adds [`OrderStore`].
    #[must_use]
    pub fn with_order(mut self, order: &'a dyn OrderStore) -> Self {
        self.order = Some(order);
        self
    }

    /// Adds [`BrowseOrder`].
    #[must_use]
    pub fn with_browse_order(mut self, browse: &'a dyn BrowseOrder) -> Self {
        self.browse_order = Some(browse);
        self
    }
}

/// Separate connections for renewals.
///
/// A handler that blocks its thread also stops the I/O and the timers of its runtime. An executor with a
/// [real-time](crate::Clock::is_real_time) clock therefore renews leases on a separate thread if the store has this
/// capability. It uses the store that [`renewal_store`](Self::renewal_store) returns. Without this capability, a handler that
/// blocks for longer than its lease loses the lease, and another worker runs the same key.
#[async_trait]
pub trait Renewal: fmt::Debug + Send + Sync {
    /// Returns a store for the same records with connections of its own.
    ///
    /// Calls to the returned store need no runtime but the one that polls this future. The executor calls this method
    /// when this store fails to renew or does not answer within half a heartbeat. The executor keeps the returned store
    /// until that store fails as well, and calls only its [`renew`](super::Store::renew) and
    /// [`renew_all`](Batch::renew_all).
    ///
    /// # Errors
    /// Returns an error if no connection could be made. The executor calls again at its next renewal.
    ///
    /// # Cancellation
    /// A dropped call leaves no connection open.
    async fn renewal_store(&self) -> Result<Arc<dyn super::Store>, StoreError>;
}

/// Several requests in one round trip. The store decides each request independently and answers in the order of
/// requests.
///
/// # Laws
/// `a_batch_answers_like_separate_requests`, `a_batch_refuses_only_unreadable_records`.
#[async_trait]
pub trait Batch: fmt::Debug + Send + Sync {
    /// Claims each key like [`Store::claim`](super::Store::claim).
    ///
    /// # Errors
    /// Returns one result for each request. A failed round trip fails all requests with the same kind.
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>>;

    /// Renews each lease like [`Store::renew`](super::Store::renew).
    ///
    /// # Errors
    /// Same as [`claim_all`](Self::claim_all).
    async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>>;

    /// Completes each key like [`Store::complete`](super::Store::complete).
    ///
    /// # Errors
    /// Same as [`claim_all`](Self::claim_all).
    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>>;
}

/// A future that ends when a key may have been settled. Watching begins when the future is created, not at its first
/// poll.
pub type Watching = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Notifies waiters when any process completes or releases a key.
///
/// # Laws
/// `watchers_are_woken_by_completion_and_release`, `watchers_are_woken_over_another_connection`.
pub trait Watch: fmt::Debug + Send + Sync {
    /// Returns a future that ends at the next completion or release of `key`.
    ///
    /// The future may also end without a cause, so check the store afterwards. A run that crashes sends no
    /// notification: its lease has to expire.
    ///
    /// # Cancellation
    /// Dropping the future ends the watch.
    fn watch(&self, key: &Key) -> Watching;
}

/// Removes expired records.
///
/// A store whose claim is one atomic step follows [`protocol::purgeable`](crate::protocol::purgeable). A
/// [`CasBackend`](crate::CasBackend) follows [`protocol::removable`](crate::protocol::removable).
///
/// # Laws
/// `a_purge_is_bounded_and_harmless`, `a_purge_keeps_unreadable_records`,
/// `fencing_rises_over_purge_within_one_instant`.
#[async_trait]
pub trait Purge: fmt::Debug + Send + Sync {
    /// Removes at most `at_most` expired records and returns their number.
    ///
    /// A record that still counts is never removed. If steps are stored apart from the records, the store also removes
    /// the steps of at most `at_most` missing records. The returned number does not include steps.
    ///
    /// # Errors
    /// Same as [`Store::release`](super::Store::release).
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError>;
}

/// Repairs by an operator. The caller is responsible for the audit log.
///
/// # Laws
/// `a_settled_key_is_deleted_only_with_its_fencing_token`, `a_held_key_is_deleted_only_by_force`,
/// `fencing_rises_over_deletion_by_an_operator`.
#[async_trait]
pub trait Admin: fmt::Debug + Send + Sync {
    /// Makes a settled key claimable again, and a consuming key only with `force`.
    ///
    /// `expected` must be the fencing number that the operator saw. The rules are those of
    /// [`protocol::forget`](crate::protocol::forget).
    ///
    /// # Errors
    /// Same as [`Store::release`](super::Store::release).
    async fn forget(
        &self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        retention: Duration,
    ) -> Result<Settled, StoreError>;
}

/// Reads a record together with the store's own time.
///
/// With the store's time, the caller can calculate the rest of a lease, delay or retention without trusting its own
/// clock.
///
/// # Laws
/// `reported_capabilities_work`.
#[async_trait]
pub trait Inspect: fmt::Debug + Send + Sync {
    /// Returns the current record and the time of the read, or `None` if the record has expired.
    ///
    /// Record and time belong to the same moment.
    ///
    /// # Errors
    /// Same as [`Store::peek`](super::Store::peek).
    ///
    /// # Cancellation
    /// The call only reads, so a drop has no effect.
    async fn inspect(&self, key: &Key) -> Result<Option<InspectedRecord>, StoreError>;
}

/// A record and the store's time, as returned by [`Inspect::inspect`].
#[derive(Clone, Debug, PartialEq)]
pub struct InspectedRecord {
    /// The record.
    pub record: Record,
    /// The store's time of the read.
    pub now: Timestamp,
}

/// Stores the [steps](crate::step()) of runs with their records.
///
/// Steps are stored under the key and the time at which its record began ([`Record::first_seen`]). Steps of a removed
/// record are therefore never mistaken for steps of the next record. [`protocol::begun`](crate::protocol::begun) and
/// [`protocol::note`](crate::protocol::note) contain the rules as pure functions. The store removes steps with their
/// record, at the latest when the record is purged.
///
/// # Laws
/// `steps_are_read_back_unchanged`, `a_step_never_returns_to_an_earlier_state`, `only_the_owner_reads_and_records_steps`,
/// `a_superseded_owner_records_no_step`, `steps_survive_release_and_takeover`, `a_new_record_of_a_key_has_no_steps`,
/// `steps_of_two_keys_are_separate`, `a_takeover_sees_each_recorded_step`.
#[async_trait]
pub trait StepStore: fmt::Debug + Send + Sync {
    /// Returns the steps that this owner and its predecessors recorded since the record began.
    ///
    /// `keep` is the minimum time for which the steps are needed from now on, for a store whose entries expire.
    ///
    /// # Errors
    /// Same as [`Store::peek`](super::Store::peek).
    ///
    /// # Cancellation
    /// The call only reads, so a drop has no effect.
    async fn steps(&self, held: &ClaimHandle, keep: Duration) -> Result<StoredSteps, StoreError>;

    /// Records one step, in one atomic operation with the check of owner, fencing number and state.
    ///
    /// The guard is the one of a completion. A repeated request changes nothing. `keep` is the same as in
    /// [`steps`](Self::steps).
    ///
    /// # Errors
    /// Same as [`Store::complete`](super::Store::complete).
    ///
    /// # Cancellation
    /// Same as [`Store::complete`](super::Store::complete).
    async fn note(&self, held: &ClaimHandle, step: &StepRecord, keep: Duration) -> Result<Settled, StoreError>;
}

/// Stores the order table of each stream, which [`Call::sequence`](crate::Call::sequence) uses.
///
/// To the store, a table is one opaque value. The executor reads the bytes, changes them and swaps them back if no
/// other process has changed them. Tables are stored with the records, under keys that no identity can produce. A
/// listing does not contain them.
///
/// # Laws
/// `an_unknown_stream_has_no_order_state`, `order_state_is_written_only_with_its_current_version`,
/// `order_state_of_any_bytes_is_read_back_unchanged`, `order_states_of_two_streams_are_separate`, `order_state_is_not_a_record`,
/// `order_state_survives_a_purge_until_it_expires`, `racing_changes_of_one_order_state_are_not_lost`.
#[async_trait]
pub trait OrderStore: fmt::Debug + Send + Sync {
    /// Returns the stream's order table and the store's time of the read.
    ///
    /// # Errors
    /// Same as [`Store::peek`](super::Store::peek).
    ///
    /// # Cancellation
    /// The call only reads, so a drop has no effect.
    async fn load(&self, stream: &Key) -> Result<StoredOrderTable, StoreError>;

    /// Replaces the table `seen` by `next` in one atomic step, and returns whether it did.
    ///
    /// The store refuses if the current table is not `seen`, where `None` means that there is no table. The store keeps
    /// `next` for at least `keep` from now and may remove it afterwards. [`Policy::FOREVER`](crate::Policy::FOREVER)
    /// means forever.
    ///
    /// # Errors
    /// Same as [`Store::complete`](super::Store::complete).
    ///
    /// # Cancellation
    /// The swap may or may not be applied.
    async fn compare_and_swap(
        &self,
        stream: &Key,
        seen: Option<&[u8]>,
        next: &[u8],
        keep: Duration,
    ) -> Result<bool, StoreError>;
}

/// Lists the order tables of streams, for operators. A store whose tables are stored among all records does not offer this
/// capability, because the listing would read the keys of all records.
#[async_trait]
pub trait BrowseOrder: fmt::Debug + Send + Sync {
    /// Returns at most `limit` tables after the position `after`, in the order of their positions. Expired tables are left out.
    ///
    /// Pass `None` for the first page, and [`next`](OrderTablePage::next) for the next one.
    ///
    /// # Errors
    /// Same as [`Store::peek`](super::Store::peek).
    ///
    /// # Cancellation
    /// The call only reads, so a drop has no effect.
    async fn browse_order(&self, after: Option<u128>, limit: usize) -> Result<OrderTablePage, StoreError>;
}

/// A page of order tables, as returned by [`BrowseOrder::browse_order`].
#[derive(Clone, Debug, Default)]
pub struct OrderTablePage {
    /// The tables, for [`StreamView::decode`](crate::StreamView::decode).
    pub tables: Vec<Arc<[u8]>>,
    /// The store's time of the read; zero for a page without a table.
    pub now: Timestamp,
    /// The position of the next page, or `None` at the end.
    pub next: Option<u128>,
}

/// An order table and the store's time, as returned by [`OrderStore::load`].
#[derive(Clone, Debug, PartialEq)]
pub struct StoredOrderTable {
    /// The order table, if there is one.
    pub table: Option<Arc<[u8]>>,
    /// The store's time of the read.
    pub now: Timestamp,
}

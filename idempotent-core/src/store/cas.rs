//! Custom stores with two methods: [`Cas`] implements the protocol on top of a compare-and-swap.
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::{Admin, Inspect, InspectedRecord, Store, StoreCapabilities};
use crate::protocol::{self, Write};
use crate::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Grant, Key, Record, Release, Settled, StoreError,
    StoreErrorKind, Timestamp,
};

/// A backend that can compare and swap one record, such as a table row, a map, or a key-value bucket of NATS.
///
/// The backend needs a clock that counts microseconds: one that all clients share, or the clocks of the clients, with a
/// [declared difference](Self::max_skew). etcd and DynamoDB report no time in microseconds, so their clients use their own clocks.
///
/// [`Cas`] turns a backend into a [`Store`]. [`Record::to_bytes`] and [`Record::from_bytes`] convert a record's stored
/// form.
#[async_trait]
pub trait CasBackend: fmt::Debug + Send + Sync + 'static {
    /// Returns the record, its version and the backend's time.
    ///
    /// The time must not go back. It decides when leases expire, so all clients must use the same clock, or clocks that differ by
    /// less than [`max_skew`](Self::max_skew).
    ///
    /// # Errors
    /// Same as [`Store`].
    ///
    /// # Laws
    /// `reading_changes_nothing`, `the_version_is_zero_exactly_without_a_record`,
    /// `a_read_gives_the_record_and_the_version_of_one_moment`, `records_of_every_state_are_read_back_unchanged`,
    /// `a_record_without_expiry_is_read_back_unchanged`, `empty_hostile_and_large_values_are_read_back_unchanged`,
    /// `a_record_stays_until_its_time`, `time_never_decreases`, `time_passes_in_microseconds`.
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError>;

    /// Writes `next` if the version is still `seen`, and returns whether it did. `None` deletes the record.
    ///
    /// [`Cas`] never deletes, but writes an expired record instead. After a deletion, a claim that read no record and
    /// was delayed could swap successfully, although another claim was granted in between, and would get a lower
    /// fencing number. The backend removes records by a TTL or by [`Purge`](super::Purge), once [`protocol::removable`]
    /// allows it: one hour after [`expires_at`](Record::expires_at).
    ///
    /// # Errors
    /// Same as [`Store`]. Returns `Ambiguous` if the reply was lost, and never a guess.
    ///
    /// # Laws
    /// `a_swap_with_the_version_just_read_writes`, `a_swap_to_no_record_deletes`,
    /// `a_swap_that_expects_no_record_does_not_replace_one`, `a_swap_that_expects_a_record_does_not_create_one`,
    /// `a_refused_swap_changes_nothing`, `each_write_changes_the_version_also_of_an_equal_record`,
    /// `a_version_does_not_repeat_after_a_deletion`, `a_version_does_not_repeat_after_writes`,
    /// `a_version_does_not_repeat_after_an_expiry`, `a_long_history_has_no_version_twice`,
    /// `a_swap_that_expects_no_record_is_refused_for_an_hour_after_an_expiry`,
    /// `two_keys_share_neither_rows_nor_versions`, `one_of_several_racing_swaps_with_one_version_wins`,
    /// `one_of_several_racing_writes_and_deletions_with_one_version_wins`, `no_update_is_lost_among_racing_ones`.
    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError>;

    /// Returns the largest difference between the times that two clients read at the same instant, at most 10 minutes.
    ///
    /// [`Cas`] extends the leases and retentions that it writes by this difference. A lease and a retention thus never end early for a
    /// client whose clock is ahead, and end late by at most twice the difference. The lease of a [`Grant`] stays as requested, because
    /// its owner measures it from the request. Delays before a retry are not extended.
    ///
    /// `Cas` refuses a longer difference with an error of kind [`Schema`](StoreErrorKind::Schema).
    ///
    /// If two clocks differ by more than declared, two owners may hold a key at the same time. Their fencing tokens differ and rise.
    ///
    /// # Default
    /// Zero: all clients read the same clock.
    ///
    /// # Laws
    /// `no_lease_is_taken_over_early`, `a_lease_may_be_taken_over_after_twice_the_difference`,
    /// `a_settled_key_is_kept_for_its_retention`, `an_owner_is_granted_the_lease_of_its_request`,
    /// `fencing_rises_over_two_clocks`.
    fn max_skew(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the capabilities that the backend adds to [`Cas`], such as [`Purge`](super::Purge) and
    /// [`Search`](super::Search).
    ///
    /// # Default
    /// No capabilities. `Cas` always has [`Admin`] and [`Inspect`].
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

/// A version of a key, different after each write and each deletion, even if the same record returns. Zero if there is
/// no record.
pub type Version = u64;

/// A record, its version and the backend's time, as returned by [`CasBackend::read`].
#[derive(Clone, Debug)]
pub struct VersionedRecord {
    /// The record, if there is one.
    pub record: Option<Record>,
    /// The version of the record, or zero if there is none.
    pub version: Version,
    /// The backend's time of the read.
    pub now: Timestamp,
}

/// A [`Store`] on top of a [`CasBackend`].
#[derive(Clone, Debug)]
pub struct Cas<B>(pub B);

/// The longest [`max_skew`](CasBackend::max_skew), which is short compared with the
/// [margin](protocol::CAS_MARGIN) of removals.
const LONGEST_SKEW: Duration = Duration::from_secs(600);

impl<B: CasBackend> Cas<B> {
    const MAX_TRIES: usize = 64;

    fn max_skew(&self) -> Result<Duration, StoreError> {
        let skew = self.0.max_skew();
        if skew <= LONGEST_SKEW {
            return Ok(skew);
        }
        Err(StoreError::new(StoreErrorKind::Schema).because(format!(
            "`max_skew` is {skew:?}, and must be at most {LONGEST_SKEW:?}; synchronize the clocks of the clients"
        )))
    }

    /// Reads, decides and swaps, and retries a limited number of times if another writer was faster.
    async fn update<T>(
        &self,
        key: &Key,
        decide: impl Fn(Option<&Record>, Timestamp) -> (T, Write) + Send,
    ) -> Result<T, StoreError> {
        for _ in 0..Self::MAX_TRIES {
            let seen = self.0.read(key).await?;
            let (answer, write) = decide(seen.record.as_ref(), seen.now);
            let next = match (write, &seen.record) {
                (Write::Keep, _) | (Write::Delete, None) => return Ok(answer),
                (Write::Put(record), _) => record,
                (Write::Delete, Some(record)) => protocol::tombstone(record, "released".into(), seen.now),
            };
            if self.0.swap(key, seen.version, Some(&next)).await? {
                return Ok(answer);
            }
        }
        let tries = Self::MAX_TRIES;
        Err(StoreError::new(StoreErrorKind::NotApplied)
            .because(format!("another writer of this key was faster {tries} times in a row; retry")))
    }
}

#[async_trait]
impl<B: CasBackend> Store for Cas<B> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let skew = self.max_skew()?;
        // A claim may also settle the key: a dead key is kept for the retention.
        let (lease, retention) = (request.lease.saturating_add(skew), request.retention.saturating_add(skew));
        let extended = ClaimRequest { lease, retention, ..request.clone() };
        let claim = self.update(&request.key, |found, now| protocol::claim(found, &extended, now)).await?;
        Ok(match claim {
            // The extension is for the clocks of others.
            Claim::Acquired(grant) => Claim::Acquired(Grant { lease: request.lease, ..grant }),
            other => other,
        })
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        let lease = lease.saturating_add(self.max_skew()?);
        self.update(&held.key, |found, now| protocol::renew(found, held, lease, now)).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        let retain = completion.retain.saturating_add(self.max_skew()?);
        let completion = Completion { retain, ..completion.clone() };
        self.update(&held.key, |found, now| protocol::complete(found, held, &completion, now)).await
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        let retention = release.retention.saturating_add(self.max_skew()?);
        let release = Release { retention, ..release.clone() };
        self.update(&held.key, |found, now| protocol::release(found, held, &release, now)).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.inspect(key).await?.map(|seen| seen.record))
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        self.0.capabilities().with_admin(self).with_inspect(self)
    }
}

#[async_trait]
impl<B: CasBackend> Admin for Cas<B> {
    async fn forget(
        &self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        retention: Duration,
    ) -> Result<Settled, StoreError> {
        let retention = retention.saturating_add(self.max_skew()?);
        self.update(key, |found, now| protocol::forget(found, expected, force, retention, now)).await
    }
}

#[async_trait]
impl<B: CasBackend> Inspect for Cas<B> {
    async fn inspect(&self, key: &Key) -> Result<Option<InspectedRecord>, StoreError> {
        let VersionedRecord { record, now, .. } = self.0.read(key).await?;
        let live = record.filter(|record| protocol::live(Some(record), now).is_some());
        Ok(live.map(|record| InspectedRecord { record, now }))
    }
}

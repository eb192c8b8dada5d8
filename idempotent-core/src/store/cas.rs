//! The short way to a custom store: two methods, and the protocol comes for free.
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::{Abilities, Inspect, Inspected, Store};
use crate::protocol::{self, Write};
use crate::{Claim, ClaimRequest, Completion, Held, Key, Micros, Record, Release, Settled, StoreError, StoreErrorKind};

/// A place that can compare and swap one record: etcd, DynamoDB, a row, a map. Wrapped in [`Cas`] it is a
/// [`Store`]. [`Record::to_bytes`] and [`Record::from_bytes`] give the record a stored form.
#[async_trait]
pub trait CasBackend: fmt::Debug + Send + Sync + 'static {
    /// What is there, its version, and the backend's own time. The time must not go back, and one clock must
    /// serve all clients: leases are judged by it.
    ///
    /// # Errors
    /// As [`Store`].
    ///
    /// # Laws
    /// `reading_changes_nothing`, `the_version_is_zero_where_nothing_is_and_only_there`,
    /// `a_read_gives_the_record_and_the_version_of_one_moment`, `records_of_every_state_come_back_as_they_were`,
    /// `a_record_without_an_end_comes_back_as_it_was`, `empty_hostile_and_large_values_come_back_as_they_were`,
    /// `a_record_stays_until_its_time`, `time_does_not_go_back`, `time_passes_in_microseconds`.
    async fn read(&self, key: &Key) -> Result<Seen, StoreError>;

    /// Writes `next`, or deletes where it is `None`, if the version is still `seen`; says whether it did.
    ///
    /// [`Cas`] never deletes: a claim that has read "nothing there" and was then held up would find nothing again,
    /// though another was granted meanwhile, and take a lower number. It writes a record that is past its time
    /// instead. The backend removes records, by a TTL or by [`Purge`](super::Purge), once
    /// [`protocol::removable`] says so: an hour after [`expires_at`](Record::expires_at).
    ///
    /// # Errors
    /// As [`Store`]: `Ambiguous` where the reply was lost, never a guess.
    ///
    /// # Laws
    /// `a_swap_with_the_version_just_read_writes`, `a_swap_to_nothing_deletes`,
    /// `a_present_record_is_not_written_by_who_saw_none`, `an_absent_record_is_not_written_by_who_saw_one`,
    /// `a_refused_swap_changes_nothing`, `each_write_changes_the_version_also_of_an_equal_record`,
    /// `a_version_does_not_come_back_over_a_deletion`, `a_version_does_not_come_back_over_writes`,
    /// `a_version_does_not_come_back_over_the_end_of_a_record`, `a_long_history_has_no_version_twice`,
    /// `a_swap_that_saw_nothing_is_refused_for_an_hour_past_a_records_time`,
    /// `two_keys_share_neither_rows_nor_versions`, `of_racing_swaps_with_one_version_one_wins`,
    /// `of_racing_writes_and_deletions_with_one_version_one_wins`, `no_update_is_lost_among_racing_ones`.
    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError>;

    /// Returns the abilities that the backend adds to its [`Cas`], such as [`Purge`](super::Purge) and [`Browse`](super::Browse).
    ///
    /// # Default
    /// None. `Cas` has [`Inspect`] in any case.
    fn abilities(&self) -> Abilities<'_> {
        Abilities::none()
    }
}

/// Differs after each write of a key, also over a deletion (A → gone → A is not A); zero where nothing is.
pub type Version = u64;

/// An answer of [`CasBackend::read`].
#[derive(Clone, Debug)]
pub struct Seen {
    /// The record, if there is one.
    pub record: Option<Record>,
    /// Its version; zero without a record.
    pub version: Version,
    /// The backend's time.
    pub now: Micros,
}

/// Makes a [`Store`] of a [`CasBackend`].
#[derive(Clone, Debug)]
pub struct Cas<B>(pub B);

impl<B: CasBackend> Cas<B> {
    const TRIES: usize = 64;

    /// Reads, decides, writes; again if somebody was faster, but not for ever.
    async fn update<T>(
        &self,
        key: &Key,
        decide: impl Fn(Option<&Record>, Micros) -> (T, Write) + Send,
    ) -> Result<T, StoreError> {
        for _ in 0..Self::TRIES {
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
        let tries = Self::TRIES;
        Err(StoreError::new(StoreErrorKind::NotApplied)
            .because(format!("{tries} times in a row another writer of this key was faster; try again")))
    }
}

#[async_trait]
impl<B: CasBackend> Store for Cas<B> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.update(&request.key, |found, now| protocol::claim(found, request, now)).await
    }

    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        self.update(&held.key, |found, now| protocol::renew(found, held, lease, now)).await
    }

    async fn complete(&self, held: &Held, completion: &Completion) -> Result<Settled, StoreError> {
        self.update(&held.key, |found, now| protocol::complete(found, held, completion, now)).await
    }

    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        self.update(&held.key, |found, now| protocol::release(found, held, release, now)).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.inspect(key).await?.map(|seen| seen.record))
    }

    fn abilities(&self) -> Abilities<'_> {
        self.0.abilities().with_inspect(self)
    }
}

#[async_trait]
impl<B: CasBackend> Inspect for Cas<B> {
    async fn inspect(&self, key: &Key) -> Result<Option<Inspected>, StoreError> {
        let Seen { record, now, .. } = self.0.read(key).await?;
        let live = record.filter(|record| protocol::live(Some(record), now).is_some());
        Ok(live.map(|record| Inspected { record, now }))
    }
}

//! The search for records, for operators.
mod filter;

use std::fmt;

use async_trait::async_trait;

pub use self::filter::{KeyFilter, NamePattern, PatternError};
use crate::{Key, Record, State, StoreError, StoreErrorKind, Timestamp};

/// The limits of one page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PageLimits {
    /// The largest number of keys that the page contains.
    pub keys: usize,
    /// The largest number of records that the store examines for the page.
    pub examined: usize,
}

impl PageLimits {
    /// The largest number of keys of any page. They are in memory at the same time.
    pub const MOST_KEYS: usize = 10_000;

    /// Returns the limits as a store applies them: 1 to [`MOST_KEYS`](Self::MOST_KEYS) keys, and at least 1 examined record.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self { keys: self.keys.clamp(1, Self::MOST_KEYS), examined: self.examined.max(1) }
    }
}

/// The default limits: 50 keys, and 200,000 examined records.
impl Default for PageLimits {
    fn default() -> Self {
        Self { keys: 50, examined: 200_000 }
    }
}

/// A record that a search found, without its result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordEntry {
    /// The key of the record.
    pub key: Key,
    /// The record. The `value` of [`State::Consumed`] is left out.
    pub record: Record,
    /// The size of the recorded result in bytes, or `None` without a result. A store may be unable to report it.
    pub result_bytes: Option<u64>,
}

impl RecordEntry {
    /// Creates an entry. Leaves out the record's result and keeps its size.
    #[must_use]
    pub fn new(key: Key, mut record: Record) -> Self {
        let result = match &mut record.state {
            State::Consumed { value, .. } => value.take(),
            _ => None,
        };
        Self { key, record, result_bytes: result.map(|value| value.len() as u64) }
    }

    /// Sets the size of the recorded result, for a store that did not load it.
    #[must_use]
    pub fn with_result_bytes(mut self, bytes: Option<u64>) -> Self {
        self.result_bytes = bytes;
        self
    }
}

/// A record that the store cannot read.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct UnreadableRecord {
    /// The storage key.
    pub key: Key,
    /// [`Corrupt`](StoreErrorKind::Corrupt), [`UnknownVersion`](StoreErrorKind::UnknownVersion) or
    /// [`Foreign`](StoreErrorKind::Foreign).
    pub kind: StoreErrorKind,
    /// The reason, such as the name of the damaged field.
    pub reason: String,
}

impl UnreadableRecord {
    /// Creates an entry from the error of reading the record.
    ///
    /// # Errors
    /// Returns the error itself if it is not about the record.
    pub fn new(key: Key, error: StoreError) -> Result<Self, StoreError> {
        match error.kind() {
            kind @ (StoreErrorKind::Corrupt | StoreErrorKind::UnknownVersion | StoreErrorKind::Foreign) => {
                Ok(Self { key, kind, reason: error.to_string() })
            }
            _ => Err(error),
        }
    }
}

/// A page of a search, and the cursor of the next page.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecordPage {
    /// The records that the filter selects, in no particular order.
    pub entries: Vec<RecordEntry>,
    /// The records that the store cannot read, if the filter selects such records.
    pub unreadable: Vec<UnreadableRecord>,
    /// The number of records that the store examined.
    pub examined: usize,
    /// The store's time, by which the filter measured ages and leases.
    pub now: Timestamp,
    /// The cursor to pass to the next call, or `None` at the end.
    pub next: Option<u128>,
}

impl RecordPage {
    /// Returns the number of entries, readable or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() + self.unreadable.len()
    }

    /// Returns whether the page has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds the record of `key`, or the error of reading the record, if `filter` selects it.
    ///
    /// # Errors
    /// Returns the error if it is not about the record.
    pub fn add(
        &mut self,
        filter: &KeyFilter,
        key: Key,
        record: Result<RecordEntry, StoreError>,
    ) -> Result<(), StoreError> {
        match record {
            Ok(entry) if filter.selects(&entry.key, &entry.record, self.now) => self.entries.push(entry),
            Ok(_) => {}
            Err(error) => {
                let unreadable = UnreadableRecord::new(key, error)?;
                if filter.selects_unreadable(&unreadable.key) {
                    self.unreadable.push(unreadable);
                }
            }
        }
        Ok(())
    }
}

/// Searches records for operators, page by page. A search writes nothing and loads no results.
///
/// # Laws
/// `a_search_lists_each_live_key_once`, `a_search_selects_by_every_condition_of_its_filter`,
/// `a_search_stays_within_its_limits`, `a_search_returns_no_results`, `a_search_resumes_after_inserts_and_deletions`,
/// `a_search_reports_unreadable_records`.
#[async_trait]
pub trait Search: fmt::Debug + Send + Sync {
    /// Returns the live records after the cursor `after` that `filter` selects.
    ///
    /// - The page ends when it has `limits.keys` entries, when the store has examined `limits.examined` records, or after the
    ///   last record. The store applies [`PageLimits::bounded`]. A page may be shorter, even empty, and still have a `next`.
    /// - A key that exists during the whole listing is listed exactly once, whatever is inserted or deleted meanwhile.
    /// - A record that cannot be read is an entry of [`RecordPage::unreadable`] and hides no other record.
    /// - A store decides by [`KeyFilter::selects`] on its own clock. It may apply parts of the filter on the server.
    /// - A cursor is valid for every filter and only for the store that returned it.
    ///
    /// # Errors
    /// Same as [`Store::peek`](super::Store::peek), except for unreadable records.
    ///
    /// # Cancellation
    /// The call only reads, so a drop has no effect.
    async fn search(
        &self,
        filter: &KeyFilter,
        after: Option<u128>,
        limits: PageLimits,
    ) -> Result<RecordPage, StoreError>;
}

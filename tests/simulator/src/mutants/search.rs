//! The mutant's search.
use async_trait::async_trait;
use idempotent_core::{KeyFilter, PageLimits, RecordEntry, RecordPage, Search, State, StoreError};

use super::rows::Row;
use super::{Bug, Mutant};

impl Mutant {
    /// Returns the filter as the bug changes it.
    fn changed(&self, filter: &KeyFilter) -> KeyFilter {
        let mut filter = filter.clone();
        if self.has(Bug::SearchIgnoresStates) {
            filter.states = KeyFilter::all().states;
        }
        if self.has(Bug::SearchIgnoresAges) {
            (filter.older_than, filter.newer_than) = (None, None);
        }
        filter
    }

    /// Adds a row to the page. Returns false where the page ends.
    fn add(&self, page: &mut RecordPage, filter: &KeyFilter, row: &Row) -> Result<bool, StoreError> {
        if !row.is_readable() && self.has(Bug::SearchEndsAtUnreadable) {
            return Ok(false);
        }
        if !row.is_readable() && self.has(Bug::SearchHidesUnreadable) {
            return Ok(true);
        }
        let mut record = match self.read(row) {
            Ok(None) => return Ok(true),
            Ok(Some(record)) => Ok(record),
            Err(error) => Err(error),
        };
        if let (true, Ok(record)) = (self.has(Bug::SearchShowsExpired), &mut record) {
            record.expires_at = record.expires_at.max(page.now + std::time::Duration::from_secs(1));
        }
        let result = match &record {
            Ok(idempotent_core::Record { state: State::Consumed { value, .. }, .. }) => value.clone(),
            _ => None,
        };
        let entry = record.map(|record| RecordEntry::new(row.key.clone(), record));
        let before = page.entries.len();
        page.add(filter, row.key.clone(), entry)?;
        if let (true, Some(added)) = (self.has(Bug::SearchReturnsResults), page.entries.get_mut(before))
            && let State::Consumed { value, .. } = &mut added.record.state
        {
            *value = result;
        }
        Ok(true)
    }
}

#[async_trait]
impl Search for Mutant {
    async fn search(
        &self,
        filter: &KeyFilter,
        after: Option<u128>,
        limits: PageLimits,
    ) -> Result<RecordPage, StoreError> {
        let (limits, filter) = (limits.bounded(), self.changed(filter));
        let rows = self.rows();
        let mut page = RecordPage::default();
        page.now = self.now();
        let mut sorted: Vec<(u128, &Row)> = rows.values().map(|row| (row.key.hash(), row)).collect();
        sorted.sort_by_key(|(hash, _)| *hash);
        if self.has(Bug::SearchCountsRecords) {
            sorted.iter_mut().zip(0..).for_each(|((place, _), number)| *place = number);
        }
        let repeats = self.has(Bug::SearchRepeats);
        for (place, row) in sorted.into_iter().filter(|(place, _)| {
            after.is_none_or(|after| if repeats { place.saturating_add(1) > after } else { *place > after })
        }) {
            let is_spent = page.examined == limits.examined && !self.has(Bug::SearchIgnoresBudget);
            if is_spent || page.len() == limits.keys {
                return Ok(page);
            }
            if !self.add(&mut page, &filter, row)? {
                break;
            }
            page.examined += 1;
            page.next = Some(place);
        }
        page.next = None;
        Ok(page)
    }
}

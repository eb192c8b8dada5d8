//! The search for records, in the order of their hashes.
use std::sync::PoisonError;

use async_trait::async_trait;

use super::{MemoryStore, shard};
use crate::StoreError;
use crate::store::{KeyFilter, PageLimits, RecordEntry, RecordPage, Search};

#[async_trait]
impl Search for MemoryStore {
    async fn search(
        &self,
        filter: &KeyFilter,
        after: Option<u128>,
        limits: PageLimits,
    ) -> Result<RecordPage, StoreError> {
        let PageLimits { keys, examined: budget } = limits.bounded();
        let mut page = RecordPage { now: self.0.clock.wall(), next: after, ..RecordPage::default() };
        // A shard contains the hashes of one range, so a listing visits the shards in their order.
        for index in after.map_or(0, shard::index)..shard::COUNT {
            if !self.search_shard(index, filter, &mut page, (keys, budget))? {
                return Ok(page);
            }
        }
        page.next = None;
        Ok(page)
    }
}

impl MemoryStore {
    /// Adds the records of one shard, and returns whether the page has room for those of the next one. Locks the shard for
    /// a bounded number of records, so a claim waits for microseconds.
    fn search_shard(
        &self,
        index: usize,
        filter: &KeyFilter,
        page: &mut RecordPage,
        (keys, budget): (usize, usize),
    ) -> Result<bool, StoreError> {
        let shard = self.0.shards[index].lock().unwrap_or_else(PoisonError::into_inner);
        let room = budget - page.examined;
        // One more than there is room for shows whether the page ends within this shard.
        let hashes = shard.hashes_after(page.next, room.saturating_add(1));
        for hash in hashes {
            if page.examined == budget || page.len() == keys {
                return Ok(false);
            }
            page.examined += 1;
            page.next = Some(hash);
            let found = shard.place(hash).and_then(|place| Some((shard.key(place)?, shard.record(place)?)));
            if let Some((key, record)) = found {
                page.add(filter, key.clone(), Ok(RecordEntry::new(key, record)))?;
            }
        }
        Ok(true)
    }
}

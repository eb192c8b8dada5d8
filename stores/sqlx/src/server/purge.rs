//! Removal of expired records in the order of their ids.
use std::time::Instant;

use idempotent_core::StoreError;

use super::dialect::Dialect;
use super::runner::settled;
use super::store::ServerStore;
use crate::purge_pause::pause_for_others;

impl<D: Dialect> ServerStore<D> {
    /// Removes expired records, from the smallest id. Records that other transactions hold are skipped. The purge also removes
    /// the steps of at most `at_most` removed records, and at most `at_most` expired order tables. Returns the number of removed
    /// records without steps and order tables.
    pub(crate) async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
        let (mut after, mut removed): (Vec<u8>, usize) = (Vec::new(), 0);
        while removed < at_most {
            let room = i64::try_from(at_most - removed).unwrap_or(i64::MAX);
            let start = Instant::now();
            let step = settled(D::purge(self, after, room).await?)?;
            removed = removed.saturating_add(step.removed);
            let Some(next) = step.next else { break };
            if step.removed > 0 {
                pause_for_others(start).await;
            }
            after = next;
        }
        self.purge_steps(at_most).await?;
        self.purge_order_tables(at_most).await?;
        Ok(removed)
    }
}

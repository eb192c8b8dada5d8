//! The mutant's order tables, which are kept forever.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Key, OrderStore, StoreError, StoredOrderTable};
use tokio::task::yield_now;

use super::{Bug, Mutant, lock};

impl Mutant {
    fn line_at(&self, stream: &Key) -> String {
        if self.has(Bug::LinesOfAllStreams) { String::new() } else { stream.as_str().to_owned() }
    }

    fn kept(&self, stream: &Key) -> Option<Vec<u8>> {
        let kept = lock(&self.shared.lines).get(&self.line_at(stream)).cloned();
        if self.has(Bug::LineOfNothing) { Some(kept.unwrap_or_default()) } else { kept }
    }
}

#[async_trait]
impl OrderStore for Mutant {
    async fn load(&self, stream: &Key) -> Result<StoredOrderTable, StoreError> {
        Ok(StoredOrderTable { table: self.kept(stream).map(Into::into), now: self.now() })
    }

    async fn compare_and_swap(
        &self,
        stream: &Key,
        seen: Option<&[u8]>,
        next: &[u8],
        _: Duration,
    ) -> Result<bool, StoreError> {
        if self.has(Bug::LineComparedFirst) {
            let is_as_seen = self.kept(stream).as_deref() == seen;
            yield_now().await;
            if is_as_seen {
                lock(&self.shared.lines).insert(self.line_at(stream), next.to_vec());
            }
            return Ok(is_as_seen);
        }
        if self.has(Bug::LineInThePlaceOfARecord) {
            self.rows().remove(&self.place(stream));
        }
        let mut lines = lock(&self.shared.lines);
        let there = lines.get(&self.line_at(stream)).map(Vec::as_slice);
        let is_as_seen = there == seen
            || self.has(Bug::LineWithoutCompare)
            || self.has(Bug::LineOfNothing) && there.is_none() && seen == Some(b"");
        if is_as_seen {
            let cut = next.iter().position(|byte| *byte == 0).filter(|_| self.has(Bug::LineCutAtZero));
            lines.insert(self.line_at(stream), next[..cut.unwrap_or(next.len())].to_vec());
        }
        Ok(is_as_seen)
    }
}

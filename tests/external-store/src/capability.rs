//! Capabilities beyond the six methods. A batch is one transaction, and so one commit.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Admin, Batch, Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Key, KeyFilter, PageLimits, Purge,
    Record, RecordEntry, RecordPage, Search, Settled, StoreError, Timestamp,
};
use redb::ReadableTable;

use crate::error::refused;
use crate::{Records, RedbStore};

impl RedbStore {
    /// Each as if it had come alone. One whose record cannot be read fails alone; a failed transaction fails all.
    async fn each<T, A>(
        &self,
        items: &[T],
        step: impl Fn(&mut Records<'_>, &T) -> Result<(A, bool), StoreError> + Send + 'static,
    ) -> Vec<Result<A, StoreError>>
    where
        T: Clone + Send + 'static,
        A: Send + 'static,
    {
        let owned = items.to_vec();
        let batch = self.write(move |records| {
            let mut changed = false;
            let answers: Vec<_> = owned
                .iter()
                .map(|item| {
                    let (answer, wrote) = step(records, item)?;
                    changed |= wrote;
                    Ok(answer)
                })
                .collect();
            Ok((answers, changed))
        });
        match batch.await {
            Ok(answers) => answers,
            Err(error) => items.iter().map(|_| Err(StoreError::new(error.kind()).because(error.to_string()))).collect(),
        }
    }
}

#[async_trait]
impl Batch for RedbStore {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        self.each(requests, |records, ask| records.step(&ask.key, |found, now| protocol::claim(found, ask, now))).await
    }

    async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        self.each(held, |records, (held, lease)| {
            records.step(&held.key, |found, now| protocol::renew(found, held, *lease, now))
        })
        .await
    }

    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        self.each(done, |records, (held, done)| {
            records.step(&held.key, |found, now| protocol::complete(found, held, done, now))
        })
        .await
    }
}

#[async_trait]
impl Search for RedbStore {
    async fn search(
        &self,
        filter: &KeyFilter,
        after: Option<u128>,
        limits: PageLimits,
    ) -> Result<RecordPage, StoreError> {
        let (filter, limits) = (filter.clone(), limits.bounded());
        self.write(move |records| {
            let from = match after {
                Some(u128::MAX) => return Ok((RecordPage::default(), false)),
                Some(after) => after + 1,
                None => 0,
            };
            let mut page = RecordPage::default();
            page.now = records.now;
            for row in records.table.range(from..).map_err(refused)? {
                if page.examined == limits.examined || page.len() == limits.keys {
                    return Ok((page, false));
                }
                let (hash, row) = row.map_err(refused)?;
                let (name, bytes) = row.value();
                let key = Key::from_parts(name, hash.value());
                let record = Record::from_bytes(bytes).map(|record| RecordEntry::new(key.clone(), record));
                page.add(&filter, key, record)?;
                page.examined += 1;
                page.next = Some(hash.value());
            }
            page.next = None;
            Ok((page, false))
        })
        .await
    }
}

#[async_trait]
impl Purge for RedbStore {
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
        self.write(move |records| {
            let mut gone = Vec::new();
            for row in records.table.iter().map_err(refused)? {
                if gone.len() == at_most {
                    break;
                }
                let (hash, row) = row.map_err(refused)?;
                if goes(row.value().1, records.now) {
                    gone.push(hash.value());
                }
            }
            for hash in &gone {
                records.table.remove(hash).map_err(refused)?;
            }
            Ok((gone.len(), !gone.is_empty()))
        })
        .await
    }
}

/// Returns whether a purge removes the record. An unreadable record stays.
fn goes(bytes: &[u8], now: Timestamp) -> bool {
    Record::from_bytes(bytes).is_ok_and(|record| protocol::purgeable(&record, now))
}

#[async_trait]
impl Admin for RedbStore {
    async fn forget(
        &self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        retention: Duration,
    ) -> Result<Settled, StoreError> {
        self.step(key, move |found, now| -> (Settled, Write) {
            protocol::forget(found, expected, force, retention, now)
        })
        .await
    }
}

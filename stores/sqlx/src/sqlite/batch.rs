//! Several requests in one transaction. The transaction holds the write lock, so the protocol itself decides the
//! requests in order, and all changes are written at the end.
use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::Write;
use idempotent_core::{
    Batch, Claim, ClaimHandle, ClaimRequest, Completion, Key, Record, Settled, StoreError, StoreErrorKind, Timestamp,
};

use tokio::sync::oneshot;

use super::SqliteStore;
use super::connection::{ConnectionGuard, Query, query};
use super::error;
use super::queued_call::{self, QueuedCall, QueuedRequest};
use super::record_access::{id, now, owner};
use super::requests::Request;
use crate::answer;
use crate::row::{self, Parts, VERSION, signed};

/// Keys or records in one statement: a full batch is prepared once, and 64 records are far below the most
/// parameters that SQLite takes.
const CHUNK: usize = 64;
/// Below it each number has a statement of its own.
const FEW: usize = 8;

/// The state of a key in this batch. A record that cannot be read is an error for each of its requests.
struct BatchEntry {
    key: Key,
    found: Result<Option<Record>, (StoreErrorKind, String)>,
    dirty: bool,
}

#[async_trait]
impl Batch for SqliteStore {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        self.batch(requests).await
    }

    async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        self.batch(held).await
    }

    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        self.batch(done).await
    }
}

impl SqliteStore {
    /// Executes a batch in a separate task, so that a dropped caller never leaves a transaction halfway.
    async fn batch<A: Request>(&self, asks: &[A]) -> Vec<Result<A::Answer, StoreError>> {
        if asks.is_empty() {
            return Vec::new();
        }
        let (store, (caller, answers)) = (self.clone(), oneshot::channel());
        let mut asked: Vec<_> = asks.iter().cloned().map(QueuedRequest::new).collect();
        tokio::spawn(async move {
            let turn = store.0.access.writer.turn().await;
            if caller.is_closed() {
                return;
            }
            let mut jobs: Vec<_> = asked.iter_mut().map(|asked| asked as &mut dyn QueuedCall).collect();
            let done = match turn {
                Ok(mut turn) => store.together::<A>(&mut turn, &mut jobs).await,
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                queued_call::fail(&mut jobs, &error);
            }
            let told = |asked: QueuedRequest<A>| {
                asked.told.unwrap_or_else(|| Err(queued_call::gone(StoreErrorKind::Ambiguous)))
            };
            // A caller that went away meanwhile wants no answer.
            let _ = caller.send(asked.into_iter().map(told).collect());
        });
        let gone = |_| asks.iter().map(|_| Err(queued_call::gone(StoreErrorKind::Ambiguous))).collect();
        answers.await.unwrap_or_else(gone)
    }

    /// Executes a batch in one transaction. On a full disk, results are left out one by one.
    async fn together<A: Request>(
        &self,
        turn: &mut ConnectionGuard<'_>,
        jobs: &mut [&mut dyn QueuedCall],
    ) -> Result<(), StoreError> {
        if self.0.access.lost.is_none() {
            match self.transact(turn, jobs).await {
                Err(error) if A::HAS_VALUE && error::is_full(&error) => {}
                done => return done,
            }
        }
        for job in jobs {
            job.alone(&self.0.access, turn).await;
        }
        Ok(())
    }

    /// Decides them one after the other, all of it in one transaction: two trips for up to [`CHUNK`] keys.
    pub(super) async fn transact(
        &self,
        turn: &mut ConnectionGuard<'_>,
        jobs: &mut [&mut dyn QueuedCall],
    ) -> Result<(), StoreError> {
        turn.begin();
        let done = self.in_transaction(turn, jobs).await;
        turn.end(done).await
    }

    async fn in_transaction(
        &self,
        turn: &mut ConnectionGuard<'_>,
        jobs: &mut [&mut dyn QueuedCall],
    ) -> Result<(), StoreError> {
        let (mut slots, now) = self.load(turn, jobs, true).await?;
        for job in jobs.iter_mut() {
            if let Some(slot) = slots.get_mut(&job.key().hash()) {
                slot.step(&mut **job, now);
            }
        }
        let mut dirty: Vec<(&Key, &Record)> = slots.values().filter_map(BatchEntry::dirty).collect();
        loop {
            let chunk = dirty.split_off(dirty.len() - chunk(dirty.len()));
            let put = query(&self.0.access.sql.put_all(chunk.len(), dirty.is_empty()));
            let put = chunk.into_iter().fold(put, |query, (key, record)| put_record(query, key, record));
            turn.run(put).await?;
            if dirty.is_empty() {
                return Ok(());
            }
        }
    }

    /// Answers those that need no write. What a reader sees was committed when the call was already on its way.
    pub(super) async fn look_at(
        &self,
        turn: &mut ConnectionGuard<'_>,
        jobs: &mut [&mut dyn QueuedCall],
    ) -> Result<(), StoreError> {
        let (slots, now) = self.load(turn, jobs, false).await?;
        for job in jobs {
            if let Some(BatchEntry { found: Ok(found), .. }) = slots.get(&job.key().hash()) {
                job.look(found.as_ref(), now);
            }
        }
        Ok(())
    }

    /// Loads records. With `begin`, the first read begins a transaction that will write.
    async fn load(
        &self,
        turn: &mut ConnectionGuard<'_>,
        jobs: &[&mut dyn QueuedCall],
        mut begin: bool,
    ) -> Result<(HashMap<u128, BatchEntry>, Timestamp), StoreError> {
        let slot = |job: &&mut dyn QueuedCall| (job.key().hash(), BatchEntry::new(job.key().clone()));
        let mut slots: HashMap<u128, BatchEntry> = jobs.iter().map(slot).collect();
        let mut left: Vec<u128> = slots.keys().copied().collect();
        let mut at = None;
        while !left.is_empty() {
            let chunk = left.split_off(left.len() - chunk(left.len()));
            let look = self.0.access.timed(query(&self.0.access.sql.look_all(chunk.len(), std::mem::take(&mut begin))));
            let look = chunk.iter().fold(look, |look, hash| look.bind(Box::<[u8]>::from(hash.to_be_bytes())));
            for row in turn.all(look).await? {
                // One time for all: that of the first look.
                at.get_or_insert(now(&row)?);
                if let Some(slot) = row::id(&row)?.and_then(|hash| slots.get_mut(&hash)) {
                    slot.found = row::record(&row).map(Some).map_err(|error| queued_call::parts(&error));
                }
            }
        }
        Ok((slots, at.ok_or_else(answer::outrun)?))
    }
}

/// Returns the number of keys in one statement. Few different numbers occur, so that each statement stays prepared.
fn chunk(count: usize) -> usize {
    match count {
        CHUNK.. => CHUNK,
        FEW.. => count - count % FEW,
        few => few,
    }
}

impl BatchEntry {
    fn new(key: Key) -> Self {
        Self { key, found: Ok(None), dirty: false }
    }

    fn step(&mut self, job: &mut dyn QueuedCall, now: Timestamp) {
        let found = match &mut self.found {
            Ok(found) => found,
            Err((kind, text)) => return job.fail(queued_call::again(*kind, text)),
        };
        match job.step(found.as_ref(), now) {
            Write::Keep => {}
            Write::Put(record) => (*found, self.dirty) = (Some(record), true),
            // No ask deletes; if one did, an expired record means the same.
            Write::Delete => {
                if let Some(record) = found {
                    (record.expires_at, self.dirty) = (record.updated_at, true);
                }
            }
        }
    }

    /// Returns the record to write, if it has changed.
    fn dirty(&self) -> Option<(&Key, &Record)> {
        self.dirty.then_some(&self.key).zip(self.found.as_ref().ok()?.as_ref())
    }
}

/// Binds a record, in the order of [`COLUMNS`](row::COLUMNS).
pub(super) fn put_record(query: Query, key: &Key, record: &Record) -> Query {
    let parts = Parts::of(record);
    query
        .bind(id(key))
        .bind(VERSION)
        .bind(key.name().to_owned())
        .bind(row::code(record.state.kind()))
        .bind(parts.owner.map(|token| owner(token.0)))
        .bind(signed(Timestamp(record.fencing.0)))
        .bind(i64::from(record.attempt))
        .bind(signed(parts.until.unwrap_or(Timestamp(0))))
        .bind(parts.taken_over.map(|fencing| signed(Timestamp(fencing.0))))
        .bind(record.fingerprint.map(|fingerprint| Box::<[u8]>::from(fingerprint.to_bytes())))
        .bind(signed(record.expires_at))
        .bind(signed(record.first_seen))
        .bind(signed(record.updated_at))
        .bind(parts.value)
        .bind(parts.error)
        .bind(record.display.clone())
}

//! The statements on records, and the connections that execute them.
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use idempotent_core::{ClaimHandle, Clock, Key, Record, StoreError, StoreErrorKind, Timestamp};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, ValueRef};

use super::connection::{ConnectionGuard, FairConnection, Query, query};
use super::error::ErrorContext;
use super::statements::SqliteStatements;
use crate::lost_result::LostResult;
use crate::row::{self, COLUMNS, Cells, signed};

/// The access to the records of a store.
#[derive(Debug)]
pub(super) struct RecordAccess {
    pub(super) sql: SqliteStatements,
    pub(super) place: Arc<ErrorContext>,
    pub(super) writer: FairConnection,
    /// Empty for a database in memory, which only its single connection can see.
    pub(super) readers: Box<[FairConnection]>,
    pub(super) next_reader: AtomicUsize,
    /// The number of consecutive new keys among claims that arrived alone; below zero, the number of consumed keys.
    pub(super) lately: AtomicI32,
    pub(super) lost: LostResult,
    pub(super) clock: Option<Arc<dyn Clock>>,
}

impl RecordAccess {
    /// Returns a connection for reads, if possible a free one.
    pub(super) async fn reader(&self) -> Result<ConnectionGuard<'_>, StoreError> {
        let readers = &self.readers;
        let start = self.next_reader.fetch_add(1, Ordering::Relaxed);
        let nth = |index: usize| readers.get(start.wrapping_add(index) % readers.len().max(1));
        let free = (0..readers.len()).filter_map(nth).find(|lane| !lane.is_taken());
        free.or_else(|| nth(0)).unwrap_or(&self.writer).turn().await
    }

    /// Binds the time of the store's own clock, if the store has one. Callers hold the connection's turn, since a time
    /// from before the wait could be older than that of another call.
    pub(super) fn timed(&self, query: Query) -> Query {
        match &self.clock {
            Some(clock) => query.bind(signed(clock.wall())),
            None => query,
        }
    }

    pub(super) async fn look(
        &self,
        turn: &mut ConnectionGuard<'_>,
        key: &Key,
    ) -> Result<Option<(Record, Timestamp)>, StoreError> {
        let look = self.timed(query(&self.sql.look).bind(id(key)));
        turn.first(look).await?.map(|row| Ok((row::record(&row)?, now(&row)?))).transpose()
    }
}

pub(super) fn held_query(sql: &Arc<str>, held: &ClaimHandle) -> Query {
    // A number that no column holds is no grant's.
    let fencing = held.fencing.map(|fencing| i64::try_from(fencing.0).unwrap_or(-1));
    query(sql).bind(id(&held.key)).bind(owner(held.owner.0)).bind(fencing)
}

pub(super) fn id(key: &Key) -> Box<[u8]> {
    Box::new(key.hash().to_be_bytes())
}

pub(super) fn owner(token: u128) -> Box<[u8]> {
    Box::new(token.to_be_bytes())
}

impl Cells for SqliteRow {
    fn int(&self, at: usize) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(at)
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, sqlx::Error> {
        if self.try_get_raw(at)?.is_null() { Ok(None) } else { self.try_get(at).map(Some) }
    }
}

/// Returns the time of the statement that read the row. An SQLite version without `unixepoch(…, 'subsec')` returns
/// null.
pub(super) fn now(row: &SqliteRow) -> Result<Timestamp, StoreError> {
    let now: Option<i64> = row.try_get(COLUMNS.len()).unwrap_or_default();
    now.and_then(|now| u64::try_from(now).ok()).map(Timestamp).ok_or_else(|| {
        StoreError::new(StoreErrorKind::Schema)
            .because("SQLite returned no time in milliseconds: use SQLite 3.42 or later")
    })
}

//! The statements on records, and the connections that execute them.
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use idempotent_core::{ClaimHandle, Clock, Key, Record, StoreError, Timestamp};

use super::columns::{id, now, owner};
use super::connection::{ConnectionGuard, FairConnection, Query, query};
use super::error::ErrorContext;
use super::statements::SqliteStatements;
use crate::lost_result::LostResult;
use crate::row::{self, signed};

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

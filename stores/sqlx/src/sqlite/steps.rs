//! The steps of runs. Each operation is one statement. Steps are written on the writer connection, in the order of callers.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{ClaimHandle, Settled, StateKind, StepRecord, StepStore, StoreError, StoredSteps, protocol};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::SqliteStore;
use super::connection::{Query, query};
use super::record_access::held_query;
use crate::steps::{self, STEP};

#[async_trait]
impl StepStore for SqliteStore {
    async fn steps(&self, held: &ClaimHandle, _: Duration) -> Result<StoredSteps, StoreError> {
        let mut turn = self.0.access.reader().await?;
        let rows = turn.all(self.0.access.timed(held_query(&self.0.steps.read, held))).await?;
        if rows.is_empty()
            && let Err(now) = self.holds(&mut turn, held).await?
        {
            return Ok(StoredSteps::Lost { now });
        }
        drop(turn);
        let read = |row: &SqliteRow| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?));
        let step = |row| steps::step(read(row).map_err(|error| self.0.access.place.error(error))?);
        let steps = rows.iter().filter_map(|row| step(row).transpose()).collect::<Result<_, StoreError>>()?;
        Ok(StoredSteps::Steps(steps))
    }

    async fn note(&self, held: &ClaimHandle, step: &StepRecord, _: Duration) -> Result<Settled, StoreError> {
        let mut turn = self.0.access.writer.turn().await?;
        if turn.execute(self.noting(held, step)).await? > 0 {
            return Ok(Settled::Done);
        }
        // The step is recorded already, or the caller no longer holds the key.
        Ok(match self.holds(&mut turn, held).await? {
            Ok(()) => Settled::Done,
            Err(now) => Settled::Lost { now },
        })
    }
}

impl SqliteStore {
    pub(super) fn noting(&self, held: &ClaimHandle, step: &StepRecord) -> Query {
        let note = held_query(&self.0.steps.note, held)
            .bind(step.name.as_bytes().to_vec())
            .bind(i64::from(step.place))
            .bind(steps::code(step.state))
            .bind(step.value.clone());
        self.0.access.timed(note)
    }

    async fn holds(
        &self,
        turn: &mut super::connection::ConnectionGuard<'_>,
        held: &ClaimHandle,
    ) -> Result<Result<(), StateKind>, StoreError> {
        Ok(match self.0.access.look(turn, &held.key).await? {
            Some((record, now)) => protocol::begun(Some(&record), held, now).map(drop),
            None => Err(StateKind::Absent),
        })
    }

    /// Removes the steps of at most `at_most` removed records.
    pub(super) async fn purge_steps(&self, at_most: usize) -> Result<(), StoreError> {
        let mut after: Vec<u8> = Vec::new();
        let mut room = i64::try_from(at_most).unwrap_or(i64::MAX);
        while room > 0 {
            let mut turn = self.0.access.reader().await?;
            let scan = self.0.access.timed(query(&self.0.steps.scan).bind(after.clone()).bind(STEP).bind(room));
            let Some(row) = turn.first(scan).await? else { return Ok(()) };
            drop(turn);
            let read = || Ok((row.try_get::<Option<Vec<u8>>, _>(0)?, row.try_get(1)?, row.try_get(2)?));
            let (last, gone, end): (_, i64, Option<Vec<u8>>) =
                read().map_err(|error| self.0.access.place.error(error))?;
            if let Some(end) = end {
                room -= gone;
                let mut turn = self.0.access.writer.turn().await?;
                let purge = query(&self.0.steps.purge).bind(after).bind(end);
                turn.execute(self.0.access.timed(purge)).await?;
            }
            // None: there were fewer.
            let Some(last) = last else { return Ok(()) };
            after = last;
        }
        Ok(())
    }
}

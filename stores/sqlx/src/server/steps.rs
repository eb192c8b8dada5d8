//! The steps of runs. Each operation is one statement. Recording a step locks the record against a takeover, so a new owner
//! finds every recorded step.
use idempotent_core::{ClaimHandle, Settled, StateKind, StepRecord, StoreError, StoreErrorKind, StoredSteps, protocol};

use super::dialect::Dialect;
use super::driver::{Connection, Driver};
use super::error::Phase;
use super::requests::{BETWEEN, by_owner};
use super::runner::{StatementResult, settled};
use super::statement::{BoundStatement, Statement};
use super::store::{FoundRecord, ServerStore};
use super::target::StatementTarget;
use crate::answer;
use crate::row::Cells;
use crate::steps::{self, STEP};

impl<D: Dialect> ServerStore<D> {
    pub(crate) async fn steps(&self, held: &ClaimHandle) -> Result<StoredSteps, StoreError> {
        let texts = &self.steps;
        let rows = settled(self.runner.all(self.timed(by_owner(&texts.read, held))).await?)?;
        if rows.is_empty()
            && let Err(now) = self.holds(held).await?
        {
            return Ok(StoredSteps::Lost { now });
        }
        let read = |row: &super::driver::Row<D>| {
            let bytes = |at| row.bytes(at).map(|bytes| bytes.map(<[u8]>::to_vec));
            Ok((bytes(0)?, row.int(1)?, row.int(2)?, bytes(3)?))
        };
        let step = |row| steps::step(read(row).map_err(|error| self.runner.place.error::<D>(Phase::Executing, error))?);
        let steps = rows.iter().filter_map(|row| step(row).transpose()).collect::<Result<_, StoreError>>()?;
        Ok(StoredSteps::Steps(steps))
    }

    pub(crate) async fn note(&self, held: &ClaimHandle, step: &StepRecord) -> Result<Settled, StoreError> {
        for _ in 0..answer::TRIES {
            match self.runner.execute(self.timed(noting(&self.steps.note, held, step))).await? {
                StatementResult::Done(1..) => return Ok(Settled::Done),
                // A concurrent takeover or completion holds the lock.
                StatementResult::Contended(..) => tokio::time::sleep(BETWEEN).await,
                // The step is recorded already, or the caller no longer holds the key.
                StatementResult::Done(0) => {
                    return Ok(match self.holds(held).await? {
                        Ok(()) => Settled::Done,
                        Err(now) => Settled::Lost { now },
                    });
                }
            }
        }
        Err(answer::outrun())
    }

    pub(crate) async fn note_in(
        &self,
        connection: &mut Connection<D>,
        held: &ClaimHandle,
        step: &StepRecord,
    ) -> Result<Settled, StoreError> {
        let mut target = StatementTarget::within(self, connection);
        for _ in 0..answer::TRIES {
            let note = noting(&self.steps.note_in, held, step).bind(self.dialect.lock(&held.key));
            if let StatementResult::Done(1..) = target.execute(self.timed(note)).await? {
                return Ok(Settled::Done);
            }
            if let StatementResult::Done(found) = target.look(&held.key).await?
                && let Err(now) = held_by(found, held)
            {
                return Ok(Settled::Lost { now });
            }
            // A concurrent claim holds the lock for a short time.
            tokio::time::sleep(BETWEEN).await;
        }
        Err(StoreError::new(StoreErrorKind::RolledBack)
            .because("the key was claimed concurrently during every attempt, or the step is recorded already: roll back, and run the transaction again"))
    }

    pub(crate) async fn journaled(&self, held: &ClaimHandle) -> Result<Option<StoredSteps>, StoreError> {
        // This query is first: writes are visible before the key is free.
        let free = D::is_free(self, &held.key).await?;
        let steps = self.steps(held).await?;
        Ok(free.then_some(steps))
    }

    async fn holds(&self, held: &ClaimHandle) -> Result<Result<(), StateKind>, StoreError> {
        Ok(held_by(self.look(&held.key).await?, held))
    }

    /// Removes the steps of at most `at_most` removed records.
    pub(super) async fn purge_steps(&self, at_most: usize) -> Result<(), StoreError> {
        let (texts, mut after) = (&self.steps, Vec::new());
        let mut room = i64::try_from(at_most).unwrap_or(i64::MAX);
        while room > 0 {
            let scan = BoundStatement::new(&texts.scan).bind(after.clone()).bind(STEP).bind(room);
            let Some(row) = settled(self.runner.first(self.timed(scan)).await?)? else { return Ok(()) };
            let id = |at| row.bytes(at).map_err(|error| self.runner.place.error::<D>(Phase::Executing, error));
            if let Some(end) = id(2)? {
                room -= self.number(&row, 1)?;
                let purge = BoundStatement::new(&texts.purge).bind(after).bind(end.to_vec());
                self.runner.execute(self.timed(purge)).await?;
            }
            // `None` if fewer steps were left than the statement scans.
            let Some(last) = id(0)? else { return Ok(()) };
            after = last.to_vec();
        }
        Ok(())
    }
}

fn held_by(found: Option<FoundRecord>, held: &ClaimHandle) -> Result<(), StateKind> {
    match found {
        Some(seen) => protocol::begun(Some(&seen.record), held, seen.now).map(drop),
        None => Err(StateKind::Absent),
    }
}

fn noting<D: Driver>(text: &Statement, held: &ClaimHandle, step: &StepRecord) -> BoundStatement<D> {
    by_owner(text, held)
        .bind(&*step.name)
        .bind(i64::from(step.place))
        .bind(steps::code(step.state))
        .bind(step.value.as_deref().map(<[u8]>::to_vec))
}

/// Implements `StepStore` for a store that wraps `Arc<ServerStore<…>>`.
macro_rules! server_steps {
    ($store:ident) => {
        #[::async_trait::async_trait]
        impl ::idempotent_core::StepStore for $store {
            async fn steps(
                &self,
                held: &::idempotent_core::ClaimHandle,
                _: ::std::time::Duration,
            ) -> Result<::idempotent_core::StoredSteps, ::idempotent_core::StoreError> {
                self.0.steps(held).await
            }

            async fn note(
                &self,
                held: &::idempotent_core::ClaimHandle,
                step: &::idempotent_core::StepRecord,
                _: ::std::time::Duration,
            ) -> Result<::idempotent_core::Settled, ::idempotent_core::StoreError> {
                self.0.note(held, step).await
            }
        }
    };
}
pub(crate) use server_steps;

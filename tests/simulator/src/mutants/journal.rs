//! The mutant's steps.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol;
use idempotent_core::{ClaimHandle, Settled, StateKind, StepRecord, StepStore, StoreError, StoredSteps, Timestamp};
use tokio::task::yield_now;

use super::rows::Rows;
use super::{Bug, Mutant, lock};

impl Mutant {
    fn steps_at(&self, held: &ClaimHandle) -> String {
        if self.has(Bug::StepsOfAllKeys) { String::new() } else { self.place(&held.key) }
    }

    /// Returns the time at which the steps of the record begin, for its owner.
    fn begun(&self, rows: &Rows, held: &ClaimHandle) -> Result<Result<Timestamp, StateKind>, StoreError> {
        let found = self.found(rows, &held.key)?;
        let begun = protocol::begun(found.as_ref(), held, self.now());
        Ok(match (self.bug, begun, found) {
            (Some(Bug::StepsOutliveTheRecord), Ok(_), _) => Ok(Timestamp(0)),
            (Some(Bug::StepsEndWithTheGrant), Ok(_), Some(record)) => Ok(Timestamp(record.fencing.0)),
            (Some(Bug::StepNotedForAnybody), Err(_), Some(record)) => Ok(record.first_seen),
            (_, begun, _) => begun,
        })
    }

    fn noted(&self, held: &ClaimHandle, begun: Result<Timestamp, StateKind>, step: &StepRecord) -> Settled {
        match begun {
            Ok(begun) => {
                self.put_step(held, begun, step);
                Settled::Done
            }
            Err(now) => Settled::Lost { now },
        }
    }

    fn put_step(&self, held: &ClaimHandle, begun: Timestamp, step: &StepRecord) {
        let mut all = lock(&self.shared.steps);
        let (since, steps) = all.entry(self.steps_at(held)).or_default();
        if *since != begun {
            (*since, *steps) = (begun, Vec::new());
        }
        if self.has(Bug::LastStepStands) {
            steps.retain(|known| known.name != step.name);
        }
        protocol::note(steps, step);
        if self.has(Bug::StepsByName) {
            steps.sort_by(|one, other| one.name.cmp(&other.name));
        }
    }
}

#[async_trait]
impl StepStore for Mutant {
    async fn steps(&self, held: &ClaimHandle, _: Duration) -> Result<StoredSteps, StoreError> {
        let begun = match self.begun(&self.rows(), held)? {
            Ok(begun) => begun,
            Err(now) => return Ok(StoredSteps::Lost { now }),
        };
        let all = lock(&self.shared.steps);
        let steps = all.get(&self.steps_at(held)).filter(|(since, _)| *since == begun);
        Ok(StoredSteps::Steps(steps.map(|(_, steps)| steps.clone()).unwrap_or_default()))
    }

    async fn note(&self, held: &ClaimHandle, step: &StepRecord, _: Duration) -> Result<Settled, StoreError> {
        if self.has(Bug::StepNotedWithoutCompare) {
            let begun = self.begun(&self.rows(), held)?;
            yield_now().await;
            return Ok(self.noted(held, begun, step));
        }
        let rows = self.rows();
        let begun = self.begun(&rows, held)?;
        Ok(self.noted(held, begun, step))
    }
}

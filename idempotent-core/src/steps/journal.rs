//! The journal of one run in this process.
use std::collections::HashSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::OnceCell;

use super::{MAX_STEPS, MAX_STEPS_BYTES, StepError, StepRecord, StepState, StoredSteps};
use crate::clock::{pause, unless};
use crate::store::StepStore;
use crate::{Lease, Rejection, Settled, StoreError, StoreErrorKind, protocol};

/// The journal of one run, created at its first step.
#[derive(Default)]
pub(crate) struct StepJournal {
    next_place: AtomicU32,
    loaded: OnceCell<()>,
    table: Mutex<StepTable>,
}

#[derive(Default)]
struct StepTable {
    /// The records in the store.
    stored: Vec<StepRecord>,
    /// True while the result of a commit is unknown, so that the store may have more records.
    commit_unknown: bool,
    called: HashSet<Box<str>>,
    compensations: Vec<(u32, Box<str>, Compensation)>,
    /// The compensations of steps that may be completed.
    unconfirmed: Vec<(u32, Box<str>, Compensation)>,
    /// The reason why the run must not be repeated.
    parked: Option<String>,
    /// True if an earlier run started to compensate its steps.
    is_compensated: bool,
}

/// The action that undoes a step if its run fails permanently.
pub(super) type Compensation = Box<dyn FnOnce() -> CompensationResult + Send>;
/// The result of a compensation. An error is reported by its type name only, since its text may contain anything.
type CompensationResult = Pin<Box<dyn Future<Output = Result<(), &'static str>> + Send>>;

/// The decision about a called step.
pub(super) enum StepStart {
    Run(u32),
    Replay(u32, Option<Arc<[u8]>>),
}

impl StepJournal {
    fn table(&self) -> MutexGuard<'_, StepTable> {
        // No code under this lock panics halfway.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a step. The step's position is assigned before the first await, so that concurrent steps are ordered by
    /// their calls.
    pub(super) async fn begin(
        &self,
        lease: &Lease,
        name: &str,
        once: bool,
        compensation: &mut Option<Compensation>,
    ) -> Result<StepStart, Rejection> {
        let place = self.next_place.fetch_add(1, Ordering::SeqCst);
        self.loaded.get_or_try_init(|| self.load(lease, name)).await?;
        let mut table = self.table();
        let start = table.begin(place, name, once);
        match start {
            Ok(start) => Ok(start),
            Err(error) => {
                if matches!(error, StepError::TakenBack { .. }) {
                    table
                        .compensations
                        .extend(compensation.take().map(|compensation| (place, name.into(), compensation)));
                }
                drop(table);
                Err(self.reject(error))
            }
        }
    }

    /// Begins a step in its run's transaction. The step commits with the run, so nothing is recorded or read.
    pub(super) fn begin_in_transaction(&self, name: &str) -> Result<(), Rejection> {
        let place = self.next_place.fetch_add(1, Ordering::SeqCst);
        let _ = self.loaded.set(());
        let start = self.table().begin(place, name, false);
        start.map(drop).map_err(|error| self.reject(error))
    }

    /// Loads the records of this run and of earlier runs.
    async fn load(&self, lease: &Lease, name: &str) -> Result<(), Rejection> {
        let journal = journal(lease, name)?;
        match retry_until_guard(lease, name, || journal.steps(lease.held(), lease.timing().step_retention)).await? {
            StoredSteps::Steps(steps) => self.table().stored = steps,
            StoredSteps::Lost { .. } => return Err(Rejection::LeaseLost),
        }
        Ok(())
    }

    pub(super) async fn record(
        &self,
        lease: &Lease,
        name: &str,
        place: u32,
        state: StepState,
        value: Option<Arc<[u8]>>,
    ) -> Result<(), Rejection> {
        let step = StepRecord { name: name.into(), place, state, value };
        self.check_room(&step)?;
        let journal = journal(lease, name)?;
        let settled =
            retry_until_guard(lease, name, || journal.note(lease.held(), &step, lease.timing().step_retention)).await?;
        self.apply_recorded(&step, settled)
    }

    pub(super) fn check_room(&self, step: &StepRecord) -> Result<(), Rejection> {
        let room = self.table().check_room(step);
        room.map_err(|error| self.reject(error))
    }

    /// Sets whether a commit has an unknown result. While it has, the record is not deleted, so that the next run can
    /// read it.
    pub(super) fn set_commit_unknown(&self, commit_unknown: bool) {
        self.table().commit_unknown = commit_unknown;
    }

    pub(super) fn apply_recorded(&self, step: &StepRecord, settled: Settled) -> Result<(), Rejection> {
        match settled {
            Settled::Done => protocol::note(&mut self.table().stored, step),
            Settled::Lost { .. } => return Err(Rejection::LeaseLost),
        }
        Ok(())
    }

    /// Adds the compensation of a completed step, if there is one.
    pub(super) fn add_compensation(&self, place: u32, name: &str, compensation: Option<Compensation>) {
        self.table().compensations.extend(compensation.map(|compensation| (place, name.into(), compensation)));
    }

    /// Adds the compensation of a step with an unknown commit.
    pub(super) fn add_unconfirmed_compensation(&self, place: u32, name: &str, compensation: Option<Compensation>) {
        self.table().unconfirmed.extend(compensation.map(|compensation| (place, name.into(), compensation)));
    }

    /// Remembers an error that ends the run permanently, and converts it for the handler.
    pub(super) fn reject(&self, error: StepError) -> Rejection {
        let mut table = self.table();
        if error.parks() {
            table.parked.get_or_insert_with(|| format!("parked: {error}"));
        }
        table.is_compensated |= matches!(error, StepError::TakenBack { .. });
        drop(table);
        error.into()
    }

    /// Returns the reason why this run must not be repeated, if there is one.
    pub(crate) fn parked_reason(&self) -> Option<String> {
        self.table().parked.clone()
    }

    /// Returns true if an earlier run failed permanently and was interrupted while it compensated its steps.
    pub(crate) fn is_compensated(&self) -> bool {
        self.table().is_compensated
    }

    /// Returns true if the store has records of steps, or may have.
    pub(crate) fn may_have_records(&self) -> bool {
        !self.loaded.initialized() || self.table().commit_unknown || !self.table().stored.is_empty()
    }

    /// Compensates the completed steps in reverse order. Each compensation is recorded before it starts, so that no
    /// later run takes its step for completed if the process is killed.
    ///
    /// # Errors
    /// A text for the record that describes the failure.
    pub(crate) async fn compensate_all(&self, lease: &Lease) -> Result<(), String> {
        let unconfirmed = std::mem::take(&mut self.table().unconfirmed);
        for (place, name, compensation) in unconfirmed {
            let done = self.is_committed(lease, place, &name).await;
            if done.map_err(|why| format!("the state of step `{name}` is unknown: {why}"))? {
                self.add_compensation(place, &name, Some(compensation));
            }
        }
        loop {
            let last = {
                let mut table = self.table();
                let last = (0..table.compensations.len()).max_by_key(|index| table.compensations[*index].0);
                last.map(|index| table.compensations.swap_remove(index))
            };
            let Some((place, name, compensation)) = last else { return Ok(()) };
            let failed = |why: &dyn std::fmt::Display| format!("step `{name}` could not be taken back: {why}");
            self.record(lease, &name, place, StepState::Undoing, None).await.map_err(|error| failed(&error))?;
            match AssertUnwindSafe(async { compensation().await }).catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(of)) => return Err(failed(&format_args!("an error of type `{of}`, its text is not kept"))),
                Err(_) => return Err(failed(&"its compensation panicked")),
            }
        }
    }

    /// Returns true if a step was committed. Writing a record for the step waits for the step's own transaction, so its
    /// result is final afterwards.
    async fn is_committed(&self, lease: &Lease, place: u32, name: &str) -> Result<bool, Rejection> {
        self.record(lease, name, place, StepState::Intended, None).await?;
        let journal = journal(lease, name)?;
        match retry_until_guard(lease, name, || journal.steps(lease.held(), lease.timing().step_retention)).await? {
            StoredSteps::Steps(steps) => {
                Ok(steps.iter().any(|step| &*step.name == name && step.state == StepState::Done))
            }
            StoredSteps::Lost { .. } => Err(Rejection::LeaseLost),
        }
    }
}

impl StepTable {
    fn begin(&mut self, place: u32, name: &str, once: bool) -> Result<StepStart, StepError> {
        let step = || Box::from(name);
        if !self.called.insert(name.into()) {
            return Err(StepError::Repeated { step: step() });
        }
        let known = self.stored.iter().find(|known| &*known.name == name);
        let at_place = self.stored.iter().find(|known| known.place == place);
        match (known, at_place) {
            (Some(known), _) if known.place == place => match known.state {
                StepState::Done => Ok(StepStart::Replay(place, known.value.clone())),
                StepState::Undoing => Err(StepError::TakenBack { step: step() }),
                StepState::Intended if once => Err(StepError::Uncertain { step: step() }),
                // The step is not at-most-once any more, so it may run again.
                StepState::Intended => Ok(StepStart::Run(place)),
            },
            (None, None) if place as usize >= MAX_STEPS => Err(StepError::TooMany { step: step(), max: MAX_STEPS }),
            (None, None) => Ok(StepStart::Run(place)),
            (Some(known), None) => {
                let recorded = Box::from(&*known.name);
                Err(StepError::NonDeterminism { place: known.place, recorded, called: step() })
            }
            (_, Some(at_place)) => {
                Err(StepError::NonDeterminism { place, recorded: Box::from(&*at_place.name), called: step() })
            }
        }
    }

    fn check_room(&self, step: &StepRecord) -> Result<(), StepError> {
        let size = |step: &StepRecord| step.value.as_ref().map_or(0, |value| value.len());
        let bytes = self.stored.iter().map(size).sum::<usize>() + size(step);
        if bytes <= MAX_STEPS_BYTES {
            return Ok(());
        }
        let of = "all steps of a run";
        Err(StepError::TooLarge { step: Box::from(&*step.name), bytes, max: MAX_STEPS_BYTES, of })
    }
}

fn journal<'a>(lease: &'a Lease, name: &str) -> Result<&'a dyn StepStore, Rejection> {
    if lease.timing().in_transaction {
        return Err(StepError::InTransaction { step: name.into() }.into());
    }
    let journal = lease.store().capabilities().steps;
    journal.ok_or_else(|| StepError::NoJournal { step: name.into() }.into())
}

/// Repeats a request until the store answers or the lease reaches its guard. Requests of a journal are idempotent.
pub(super) async fn retry_until_guard<T, Fut>(lease: &Lease, name: &str, ask: impl Fn() -> Fut) -> Result<T, Rejection>
where
    Fut: Future<Output = Result<T, StoreError>>,
{
    let clock = &**lease.clock();
    let mut pause_for = Duration::from_millis(10);
    loop {
        // One try must not use up the remaining time.
        let left = lease.guard().saturating_duration_since(clock.now());
        let deadline = clock.now() + (left / 3).max(Duration::from_millis(1));
        let answer = unless(ask(), || clock.sleep_until(deadline)).await;
        let cause = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(cause)) => cause,
            Err(()) => StoreError::new(StoreErrorKind::Ambiguous).because("no answer in time"),
        };
        if !cause.is_worth_a_retry() || lease.guard() <= clock.now() + pause_for {
            return Err(StepError::Store { step: name.into(), cause }.into());
        }
        pause(clock, pause_for).await;
        pause_for = (pause_for * 2).min(Duration::from_secs(1));
    }
}

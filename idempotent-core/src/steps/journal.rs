//! The journal of one run, as this process knows it.
use std::collections::HashSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::OnceCell;

use super::{JournalError, Journaled, MAX_JOURNAL_BYTES, MAX_STEPS, StepRecord, StepState};
use crate::clock::{pause, unless};
use crate::store::Journal;
use crate::{Lease, Rejection, Settled, StoreError, StoreErrorKind, protocol};

/// Made at a run's first step.
#[derive(Default)]
pub(crate) struct StepJournal {
    next: AtomicU32,
    read: OnceCell<()>,
    book: Mutex<StepTable>,
}

#[derive(Default)]
struct StepTable {
    /// What the store has.
    kept: Vec<StepRecord>,
    /// Whether it may have more: nobody has said what became of a commit.
    unsure: bool,
    called: HashSet<Box<str>>,
    undo: Vec<(u32, Box<str>, Compensation)>,
    /// Of steps that may be done.
    doubts: Vec<(u32, Box<str>, Compensation)>,
    /// Why the run is not to be repeated.
    parked: Option<String>,
    /// Whether an earlier run began to take steps back.
    taken_back: bool,
}

/// What a step leaves to be done if its run fails for good.
pub(super) type Compensation = Box<dyn FnOnce() -> CompensationResult + Send>;
/// An error is told by its type: its text may be anything.
type CompensationResult = Pin<Box<dyn Future<Output = Result<(), &'static str>> + Send>>;

/// What is to be done for a step that is called.
pub(super) enum StepStart {
    Run(u32),
    Replay(u32, Option<Arc<[u8]>>),
}

impl StepJournal {
    fn book(&self) -> MutexGuard<'_, StepTable> {
        // Nothing under this lock panics halfway.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks the step up. Its place is taken before anything is waited for, so that steps side by side stand in the order
    /// in which they were called.
    pub(super) async fn begin(
        &self,
        lease: &Lease,
        name: &str,
        once: bool,
        undo: &mut Option<Compensation>,
    ) -> Result<StepStart, Rejection> {
        let place = self.next.fetch_add(1, Ordering::SeqCst);
        self.read.get_or_try_init(|| self.read(lease, name)).await?;
        let mut book = self.book();
        let begun = book.begin(place, name, once);
        match begun {
            Ok(begin) => Ok(begin),
            Err(error) => {
                if matches!(error, JournalError::TakenBack { .. }) {
                    book.undo.extend(undo.take().map(|undo| (place, name.into(), undo)));
                }
                drop(book);
                Err(self.refuse(error))
            }
        }
    }

    /// A step in the transaction of its run, which stands and falls with it: nothing is kept, nothing is there to be read.
    pub(super) fn begin_inside(&self, name: &str) -> Result<(), Rejection> {
        let place = self.next.fetch_add(1, Ordering::SeqCst);
        let _ = self.read.set(());
        let begun = self.book().begin(place, name, false);
        begun.map(drop).map_err(|error| self.refuse(error))
    }

    /// The run's own journal, or that of the runs before it.
    async fn read(&self, lease: &Lease, name: &str) -> Result<(), Rejection> {
        let journal = journal(lease, name)?;
        match insist(lease, name, || journal.steps(lease.held(), lease.keep())).await? {
            Journaled::Steps(steps) => self.book().kept = steps,
            Journaled::Lost { .. } => return Err(Rejection::LeaseLost),
        }
        Ok(())
    }

    pub(super) async fn note(
        &self,
        lease: &Lease,
        name: &str,
        place: u32,
        state: StepState,
        value: Option<Arc<[u8]>>,
    ) -> Result<(), Rejection> {
        let step = StepRecord { name: name.into(), place, state, value };
        self.has_room_for(&step)?;
        let journal = journal(lease, name)?;
        let settled = insist(lease, name, || journal.note(lease.held(), &step, lease.keep())).await?;
        self.noted(&step, settled)
    }

    pub(super) fn has_room_for(&self, step: &StepRecord) -> Result<(), Rejection> {
        let room = self.book().room_for(step);
        room.map_err(|error| self.refuse(error))
    }

    /// Until this is told otherwise the record is not deleted: without it the next run would not find what there may be.
    pub(super) fn unsure(&self, unsure: bool) {
        self.book().unsure = unsure;
    }

    pub(super) fn noted(&self, step: &StepRecord, settled: Settled) -> Result<(), Rejection> {
        match settled {
            Settled::Done => protocol::note(&mut self.book().kept, step),
            Settled::Lost { .. } => return Err(Rejection::LeaseLost),
        }
        Ok(())
    }

    /// What takes a step back that is done, if there is something.
    pub(super) fn undo_by(&self, place: u32, name: &str, undo: Option<Compensation>) {
        self.book().undo.extend(undo.map(|undo| (place, name.into(), undo)));
    }

    /// What takes a step back of whose commit nobody has told.
    pub(super) fn doubt(&self, place: u32, name: &str, undo: Option<Compensation>) {
        self.book().doubts.extend(undo.map(|undo| (place, name.into(), undo)));
    }

    /// Remembers what ends the run for good, and tells the handler.
    pub(super) fn refuse(&self, error: JournalError) -> Rejection {
        let mut book = self.book();
        if error.parks() {
            book.parked.get_or_insert_with(|| format!("parked: {error}"));
        }
        book.taken_back |= matches!(error, JournalError::TakenBack { .. });
        drop(book);
        error.into()
    }

    /// Why this run is not to be repeated, if it is not.
    pub(crate) fn parked(&self) -> Option<String> {
        self.book().parked.clone()
    }

    /// Whether an earlier run failed for good and was cut off while it took its steps back.
    pub(crate) fn is_taken_back(&self) -> bool {
        self.book().taken_back
    }

    /// Whether the store has steps of this run, or may have.
    pub(crate) fn is_kept(&self) -> bool {
        !self.read.initialized() || self.book().unsure || !self.book().kept.is_empty()
    }

    /// Takes the steps back, the last one first. That it is about to is noted before each: whatever becomes of this
    /// process, no later run takes such a step for done.
    ///
    /// # Errors
    /// What went wrong, as a text for the record.
    pub(crate) async fn take_back(&self, lease: &Lease) -> Result<(), String> {
        let doubts = std::mem::take(&mut self.book().doubts);
        for (place, name, undo) in doubts {
            let done = self.is_done(lease, place, &name).await;
            if done.map_err(|why| format!("nobody knows whether step `{name}` is done: {why}"))? {
                self.undo_by(place, &name, Some(undo));
            }
        }
        loop {
            let last = {
                let mut book = self.book();
                let last = (0..book.undo.len()).max_by_key(|at| book.undo[*at].0);
                last.map(|at| book.undo.swap_remove(at))
            };
            let Some((place, name, undo)) = last else { return Ok(()) };
            let failed = |why: &dyn std::fmt::Display| format!("step `{name}` could not be taken back: {why}");
            self.note(lease, &name, place, StepState::Undoing, None).await.map_err(|error| failed(&error))?;
            match AssertUnwindSafe(async { undo().await }).catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(of)) => return Err(failed(&format_args!("an error of type `{of}`, its text is not kept"))),
                Err(_) => return Err(failed(&"its compensation panicked")),
            }
        }
    }

    /// Whether a step was committed. A note of it waits for the transaction that it is written in, so that it is over behind
    /// that, one way or the other.
    async fn is_done(&self, lease: &Lease, place: u32, name: &str) -> Result<bool, Rejection> {
        self.note(lease, name, place, StepState::Intended, None).await?;
        let journal = journal(lease, name)?;
        match insist(lease, name, || journal.steps(lease.held(), lease.keep())).await? {
            Journaled::Steps(steps) => {
                Ok(steps.iter().any(|step| &*step.name == name && step.state == StepState::Done))
            }
            Journaled::Lost { .. } => Err(Rejection::LeaseLost),
        }
    }
}

impl StepTable {
    fn begin(&mut self, place: u32, name: &str, once: bool) -> Result<StepStart, JournalError> {
        let step = || Box::from(name);
        if !self.called.insert(name.into()) {
            return Err(JournalError::Repeated { step: step() });
        }
        let known = self.kept.iter().find(|known| &*known.name == name);
        let there = self.kept.iter().find(|known| known.place == place);
        match (known, there) {
            (Some(known), _) if known.place == place => match known.state {
                StepState::Done => Ok(StepStart::Replay(place, known.value.clone())),
                StepState::Undoing => Err(JournalError::TakenBack { step: step() }),
                StepState::Intended if once => Err(JournalError::Uncertain { step: step() }),
                // The handler does not mind any more.
                StepState::Intended => Ok(StepStart::Run(place)),
            },
            (None, None) if place as usize >= MAX_STEPS => Err(JournalError::TooMany { step: step(), max: MAX_STEPS }),
            (None, None) => Ok(StepStart::Run(place)),
            (Some(known), None) => {
                let recorded = Box::from(&*known.name);
                Err(JournalError::NonDeterminism { place: known.place, recorded, called: step() })
            }
            (_, Some(there)) => {
                Err(JournalError::NonDeterminism { place, recorded: Box::from(&*there.name), called: step() })
            }
        }
    }

    fn room_for(&self, step: &StepRecord) -> Result<(), JournalError> {
        let size = |step: &StepRecord| step.value.as_ref().map_or(0, |value| value.len());
        let bytes = self.kept.iter().map(size).sum::<usize>() + size(step);
        if bytes <= MAX_JOURNAL_BYTES {
            return Ok(());
        }
        let of = "all steps of a run";
        Err(JournalError::TooLarge { step: Box::from(&*step.name), bytes, max: MAX_JOURNAL_BYTES, of })
    }
}

fn journal<'a>(lease: &'a Lease, name: &str) -> Result<&'a dyn Journal, Rejection> {
    if lease.is_in_transaction() {
        return Err(JournalError::InTransaction { step: name.into() }.into());
    }
    let journal = lease.store().abilities().journal;
    journal.ok_or_else(|| JournalError::NoJournal { step: name.into() }.into())
}

/// Asks until it is answered, or until the guard of the lease: what an owner reads and notes may be asked twice.
pub(super) async fn insist<T, Fut>(lease: &Lease, name: &str, ask: impl Fn() -> Fut) -> Result<T, Rejection>
where
    Fut: Future<Output = Result<T, StoreError>>,
{
    let clock = &**lease.clock();
    let mut rest = Duration::from_millis(10);
    loop {
        // One try may not use up all of the time.
        let left = lease.guard().saturating_duration_since(clock.now());
        let try_until = clock.now() + (left / 3).max(Duration::from_millis(1));
        let answer = unless(ask(), || clock.sleep_until(try_until)).await;
        let cause = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(cause)) => cause,
            Err(()) => StoreError::new(StoreErrorKind::Ambiguous).because("no answer in time"),
        };
        if !cause.is_worth_a_retry() || lease.guard() <= clock.now() + rest {
            return Err(JournalError::Store { step: name.into(), cause }.into());
        }
        pause(clock, rest).await;
        rest = (rest * 2).min(Duration::from_secs(1));
    }
}

//! What the journal has to say at a run's end: steps that are taken back, and records that must not be deleted.
use std::borrow::Cow;
use std::time::Duration;

use super::attempt::Attempt;
use super::judge::Worth;
use crate::context::Frame;
use crate::outcome::Slot;
use crate::{Held, Journaled, Lease, Outcome, Release, Store, Verdict};

impl Attempt<'_> {
    /// What a failed run is worth, with a look at its steps. Those of a run that fails for good are taken back; the lease
    /// is kept alive meanwhile.
    pub(super) async fn look_at_steps(
        &self,
        worth: Worth,
        error: Cow<'static, str>,
        inner: Option<&Outcome>,
    ) -> (Worth, Cow<'static, str>) {
        let Some(steps) = self.lease.steps_called() else { return (worth, error) };
        if let Some(parked) = steps.parked() {
            return (Worth::Parked, parked.into());
        }
        let deferred = worth == Worth::AnotherRun && inner.is_some_and(Outcome::is_deferral);
        let ends = worth == Worth::NoMore || self.is_last() && !deferred || steps.is_taken_back();
        if !ends {
            return (worth, error);
        }
        // What compensations run is not what this delivery came to.
        let frame = Frame { lease: Some(self.lease.clone()), slot: Some(Slot::default()), ..Frame::current() };
        match frame.enter(steps.take_back(&self.lease)).await {
            Ok(()) if steps.is_taken_back() => (Worth::NoMore, error),
            Ok(()) => (worth, error),
            // Tried again by the next run, or left to a person where this was the last one.
            Err(why) => (Worth::AnotherRun, format!("{why}; before that: {error}").into()),
        }
    }

    pub(super) fn is_last(&self) -> bool {
        let max = self.terms().max_attempts();
        max > 0 && self.lease.attempt() >= max
    }
}

/// Whether there are steps of this run or of one before it, as far as can be told without asking. Without a limit a
/// deferred run that had steps keeps its attempt, so that the next one knows that it is not the first.
pub(super) fn known_steps(lease: &Lease, limit: bool) -> Option<bool> {
    match lease.steps_called() {
        Some(steps) => Some(steps.is_kept()),
        None if lease.is_first() && !limit => Some(false),
        None => None,
    }
}

/// A release that may delete the record would take the steps along that are to be replayed: it leaves the key vacant
/// instead. `known` is whether there are any, if that need not be asked.
pub(super) async fn sparing_steps(
    store: &dyn Store,
    held: &Held,
    known: Option<bool>,
    release: Release,
    limit: bool,
) -> Release {
    let deletes = match release.verdict {
        Verdict::Delete => true,
        Verdict::Refund => release.delay.is_zero(),
        Verdict::Vacate | Verdict::Fail | Verdict::Bury => false,
    };
    let Some(journal) = store.abilities().journal.filter(|_| deletes && known != Some(false)) else { return release };
    let spares = match known {
        Some(known) => known,
        None => match journal.steps(held, release.memory).await {
            Ok(Journaled::Steps(steps)) => !steps.is_empty(),
            // Nothing will be released.
            Ok(Journaled::Lost { .. }) => false,
            Err(_) => true,
        },
    };
    if spares { spared(release, limit) } else { release }
}

/// Returns the release with a verdict that keeps the record and its steps.
pub(super) fn spared(release: Release, limit: bool) -> Release {
    match release.verdict {
        Verdict::Vacate | Verdict::Fail | Verdict::Bury => release,
        // The shortest delay keeps the record, and costs no attempt.
        Verdict::Refund if !release.delay.is_zero() => release,
        Verdict::Refund if limit => Release { delay: Duration::from_millis(1), ..release },
        _ => Release { verdict: Verdict::Vacate, ..release },
    }
}

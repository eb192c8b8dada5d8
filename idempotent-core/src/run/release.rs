//! Releases, and the rule that a release does not delete steps that a later run replays.
use std::sync::Arc;
use std::time::Duration;

use crate::policy::ResolvedPolicy;
use crate::{Held, Journaled, Lease, Release, StateKind, Store, Verdict};

impl ResolvedPolicy {
    /// Without a limit there is nothing to remember.
    pub(crate) fn vacate_or_delete(&self, verdict: Verdict) -> Verdict {
        if self.max_attempts() > 0 { verdict } else { Verdict::Delete }
    }

    pub(crate) fn release(&self, verdict: Verdict, error: &str) -> Release {
        // After the window an equal call is another one, and has nothing to do with what failed before.
        let memory = if self.window.is_zero() { self.memory } else { self.window };
        release(verdict, memory, error)
    }
}

pub(crate) fn release(verdict: Verdict, memory: Duration, error: &str) -> Release {
    Release { verdict, delay: Duration::ZERO, memory, error: Arc::from(error) }
}

/// Returns true if an applied release of this verdict leaves a key in this state.
pub(crate) fn leads_to_state(verdict: Verdict, now: StateKind) -> bool {
    match verdict {
        Verdict::Delete | Verdict::Refund => matches!(now, StateKind::Absent | StateKind::Vacant),
        Verdict::Vacate => now == StateKind::Vacant,
        Verdict::Fail => now == StateKind::Failed,
        Verdict::Bury => now == StateKind::Dead,
    }
}

/// Whether there are steps of this run or of one before it, as far as can be told without asking. Without a limit a
/// deferred run that had steps keeps its attempt, so that the next one knows that it is not the first.
pub(crate) fn known_steps(lease: &Lease, counts_attempts: bool) -> Option<bool> {
    match lease.steps_called() {
        Some(steps) => Some(steps.may_have_records()),
        None if lease.is_first() && !counts_attempts => Some(false),
        None => None,
    }
}

/// A release that may delete the record would take the steps along that are to be replayed: it leaves the key vacant
/// instead. `known` is whether there are any, if that need not be asked.
pub(crate) async fn keeping_steps(
    store: &dyn Store,
    held: &Held,
    known: Option<bool>,
    release: Release,
    counts_attempts: bool,
) -> Release {
    let deletes = match release.verdict {
        Verdict::Delete => true,
        Verdict::Refund => release.delay.is_zero(),
        Verdict::Vacate | Verdict::Fail | Verdict::Bury => false,
    };
    let Some(journal) = store.abilities().journal.filter(|_| deletes && known != Some(false)) else { return release };
    let has_steps = match known {
        Some(known) => known,
        None => match journal.steps(held, release.memory).await {
            Ok(Journaled::Steps(steps)) => !steps.is_empty(),
            // Nothing will be released.
            Ok(Journaled::Lost { .. }) => false,
            Err(_) => true,
        },
    };
    if has_steps { keeping_record(release, counts_attempts) } else { release }
}

/// Returns the release with a verdict that keeps the record and its steps.
pub(crate) fn keeping_record(release: Release, counts_attempts: bool) -> Release {
    match release.verdict {
        Verdict::Vacate | Verdict::Fail | Verdict::Bury => release,
        // The shortest delay keeps the record, and costs no attempt.
        Verdict::Refund if !release.delay.is_zero() => release,
        Verdict::Refund if counts_attempts => Release { delay: Duration::from_millis(1), ..release },
        _ => Release { verdict: Verdict::Vacate, ..release },
    }
}

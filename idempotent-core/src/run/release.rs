//! Releases, and the rule that a release does not delete steps that a later run replays.
use std::sync::Arc;
use std::time::Duration;

use crate::policy::ResolvedPolicy;
use crate::{ClaimHandle, Lease, Release, ReleaseKind, StateKind, Store, StoredSteps};

impl ResolvedPolicy {
    /// Returns `verdict`, or [`ReleaseKind::Delete`] if attempts are unlimited, so that no count has to be kept.
    pub(crate) fn vacate_or_delete(&self, verdict: ReleaseKind) -> ReleaseKind {
        if self.max_attempts() > 0 { verdict } else { ReleaseKind::Delete }
    }

    pub(crate) fn release(&self, verdict: ReleaseKind, error: &str) -> Release {
        // After the window an equal payload is a new call, which must not see earlier failures.
        let retention = if self.window.is_zero() { self.retain_failures } else { self.window };
        release(verdict, retention, error)
    }
}

pub(crate) fn release(verdict: ReleaseKind, retention: Duration, error: &str) -> Release {
    Release { kind: verdict, delay: Duration::ZERO, retention, error: Arc::from(error) }
}

/// Returns true if an applied release of this verdict leaves a key in this state.
pub(crate) fn leads_to_state(verdict: ReleaseKind, now: StateKind) -> bool {
    match verdict {
        ReleaseKind::Delete | ReleaseKind::Refund => matches!(now, StateKind::Absent | StateKind::Vacant),
        ReleaseKind::Vacate => now == StateKind::Vacant,
        ReleaseKind::MarkFailed => now == StateKind::Failed,
        ReleaseKind::MarkDead => now == StateKind::Dead,
    }
}

/// Returns whether this run or an earlier one has steps, or `None` if only the store knows. If attempts are unlimited,
/// a deferred run with steps keeps its attempt, so that the next run is not taken for the first.
pub(crate) fn known_steps(lease: &Lease, counts_attempts: bool) -> Option<bool> {
    match lease.steps_called() {
        Some(steps) => Some(steps.may_have_records()),
        None if lease.is_first() && !counts_attempts => Some(false),
        None => None,
    }
}

/// Replaces a release that would delete steps that a later run replays. `known` is whether there are steps, if that is
/// known without a request.
pub(crate) async fn keeping_steps(
    store: &dyn Store,
    held: &ClaimHandle,
    known: Option<bool>,
    release: Release,
    counts_attempts: bool,
) -> Release {
    let deletes = match release.kind {
        ReleaseKind::Delete => true,
        ReleaseKind::Refund => release.delay.is_zero(),
        ReleaseKind::Vacate | ReleaseKind::MarkFailed | ReleaseKind::MarkDead => false,
    };
    let Some(journal) = store.capabilities().steps.filter(|_| deletes && known != Some(false)) else {
        return release;
    };
    let has_steps = match known {
        Some(known) => known,
        None => match journal.steps(held, release.retention).await {
            Ok(StoredSteps::Steps(steps)) => !steps.is_empty(),
            // Another owner holds the key, so the release will have no effect.
            Ok(StoredSteps::Lost { .. }) => false,
            Err(_) => true,
        },
    };
    if has_steps { keeping_record(release, counts_attempts) } else { release }
}

/// Returns the release with a verdict that keeps the record and its steps.
pub(crate) fn keeping_record(release: Release, counts_attempts: bool) -> Release {
    match release.kind {
        ReleaseKind::Vacate | ReleaseKind::MarkFailed | ReleaseKind::MarkDead => release,
        // The shortest delay keeps the record and costs no attempt.
        ReleaseKind::Refund if !release.delay.is_zero() => release,
        ReleaseKind::Refund if counts_attempts => Release { delay: Duration::from_millis(1), ..release },
        _ => Release { kind: ReleaseKind::Vacate, ..release },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [ReleaseKind; 5] =
        [ReleaseKind::Delete, ReleaseKind::Refund, ReleaseKind::Vacate, ReleaseKind::MarkFailed, ReleaseKind::MarkDead];

    #[test]
    fn each_verdict_leads_to_its_own_states() {
        use StateKind::{Absent, Consumed, Consuming, Dead, Failed, Vacant};
        let states = [&[Absent, Vacant][..], &[Absent, Vacant], &[Vacant], &[Failed], &[Dead]];
        for (kind, expected) in KINDS.into_iter().zip(states) {
            for state in [Absent, Consuming, Consumed, Vacant, Failed, Dead] {
                assert_eq!(leads_to_state(kind, state), expected.contains(&state), "{kind:?} {state:?}");
            }
        }
    }

    #[test]
    fn a_record_is_kept_by_a_verdict_that_changes_as_little_as_possible() {
        let (now, later) = (Duration::ZERO, Duration::from_millis(1));
        let of = |kind, delay| Release { delay, ..release(kind, Duration::from_secs(60), "error") };
        for (kind, delay, counts_attempts, expected) in [
            (ReleaseKind::Delete, now, true, (ReleaseKind::Vacate, now)),
            (ReleaseKind::Delete, now, false, (ReleaseKind::Vacate, now)),
            (ReleaseKind::Refund, now, true, (ReleaseKind::Refund, later)),
            (ReleaseKind::Refund, now, false, (ReleaseKind::Vacate, now)),
            (ReleaseKind::Refund, Duration::from_secs(5), true, (ReleaseKind::Refund, Duration::from_secs(5))),
            (ReleaseKind::Refund, Duration::from_secs(5), false, (ReleaseKind::Refund, Duration::from_secs(5))),
            (ReleaseKind::Vacate, now, true, (ReleaseKind::Vacate, now)),
            (ReleaseKind::MarkFailed, now, true, (ReleaseKind::MarkFailed, now)),
            (ReleaseKind::MarkDead, now, false, (ReleaseKind::MarkDead, now)),
        ] {
            let kept = keeping_record(of(kind, delay), counts_attempts);
            assert_eq!((kept.kind, kept.delay), expected, "{kind:?} {delay:?} {counts_attempts}");
        }
    }
}

//! I1 to I6: grants, records and answers of the store.
use std::collections::BTreeSet;

use idempotent_core::{Claim, Outcome, Settled};

use super::ensure;
use crate::events::{Told, What};
use crate::ledger::walk;

/// Checks the answers of the store, and the view of the executor: while a lease reports that it is not lost, no other
/// owner has the key.
pub(super) fn one_holder(history: &Told) -> Result<(), String> {
    walk(history, |_, before, event| match &event.what {
        What::Claim(claimed) if matches!(claimed.answer, Claim::Acquired(_)) => match before.live_holder(event.at) {
            Some(other) if other.owner != claimed.owner => Err(format!("granted beside {other:?}")),
            _ => Ok(()),
        },
        // A clock that was set ends leases that their owners believe to be valid.
        What::Effect { fencing: Some(fencing), believes: true, .. } if history.plan.store_clock_set().is_zero() => {
            let holds = before.live_holder(event.at).is_some_and(|grant| grant.fencing == *fencing);
            ensure(holds, || {
                format!("the lease reports that it holds, the store {:?} {:?}", before.phase, before.last())
            })
        }
        _ => Ok(()),
    })
    .map(drop)
}

pub(super) fn no_foreign_release(history: &Told) -> Result<(), String> {
    walk(history, |_, before, event| match &event.what {
        // A release of a consumed record is a case of I4.
        What::Release { owner, answer: Settled::Done, .. } if before.consumed(event.at).is_none() => {
            ensure(before.repeats(event.at, *owner), || {
                format!("released, but it is {:?} of {:?}", before.phase, before.last())
            })
        }
        _ => Ok(()),
    })
    .map(drop)
}

pub(super) fn no_completion_by_a_superseded_owner(history: &Told) -> Result<(), String> {
    walk(history, |_, before, event| match &event.what {
        What::Complete { owner, answer: Settled::Done, .. } => {
            let its_own = before.last().is_some_and(|grant| grant.owner == *owner);
            let stands = before.holder(event.at).is_some() || before.consumed(event.at).is_some();
            ensure(its_own && stands, || format!("completed, but it is {:?} of {:?}", before.phase, before.last()))
        }
        What::Renew { owner, answer: Settled::Done, .. } => {
            // A release of a consumed record is a case of I4.
            let its_own = before.repeats(event.at, *owner) || before.consumed(event.at).is_some();
            ensure(its_own, || format!("renewed, but it is {:?} of {:?}", before.phase, before.last()))
        }
        _ => Ok(()),
    })
    .map(drop)
}

/// Checks that within the retention, a consumed key is reported as consumed and does not change.
pub(super) fn consumed_is_never_undone(history: &Told) -> Result<(), String> {
    let mut completing = BTreeSet::new();
    walk(history, |_, before, event| {
        let consumed = before.consumed(event.at).is_some();
        match &event.what {
            What::Release { answer: Settled::Done, .. } | What::Renew { answer: Settled::Done, .. } if consumed => {
                Err(format!("consumed, yet done: {:?}", before.last()))
            }
            What::Claim(claimed) if consumed => match &claimed.answer {
                // These cases belong to I4b and I12.
                Claim::Consumed(_) | Claim::Mismatch | Claim::Acquired(_) => Ok(()),
                other => Err(format!("consumed, but answered {other:?}")),
            },
            What::Complete { owner, .. } => {
                completing.insert(owner.0);
                Ok(())
            }
            // Checks the executor: after it has requested a completion, it never removes the marker.
            What::Release { owner, .. }
                if completing.contains(&owner.0)
                    && !history.scripted.contains(&owner.0)
                    && !history.plan.release_on_cancel() =>
            {
                Err("released by an owner that had sent its completion".to_owned())
            }
            _ => Ok(()),
        }
    })
    .map(drop)
}

pub(super) fn no_grant_within_retention(history: &Told) -> Result<(), String> {
    walk(history, |_, before, event| match &event.what {
        What::Claim(claimed) if matches!(claimed.answer, Claim::Acquired(_)) => {
            ensure(before.consumed(event.at).is_none(), || "granted though consumed".to_owned())
        }
        _ => Ok(()),
    })
    .map(drop)
}

/// Checks that duplicates get the first result, both from the store and from their executor.
pub(super) fn the_first_result_stands(history: &Told) -> Result<(), String> {
    walk(history, |_, before, event| match &event.what {
        What::Claim(claimed) => match (&claimed.answer, before.consumed(event.at)) {
            (Claim::Consumed(told), Some(value)) => {
                let fencing = before.last().map(|grant| grant.fencing);
                let same = told.value == *value && Some(told.fencing) == fencing;
                ensure(same, || format!("the first result was {value:?} of {fencing:?}"))
            }
            (Claim::Consumed(_), None) => Err(format!("answered as consumed, but the key is {:?}", before.phase)),
            _ => Ok(()),
        },
        What::Delivered { value: Some(value), outcome: Some(Outcome::Ran | Outcome::Replayed), .. } => {
            let known = before.completed.iter().any(|(_, first)| first.as_deref() == Some(value.as_bytes()));
            ensure(known, || "this result was never stored".to_owned())
        }
        _ => Ok(()),
    })
    .map(drop)
}

/// Checks that fencing tokens rise, and that a repeated claim is granted once.
pub(super) fn fencing_rises(history: &Told) -> Result<(), String> {
    walk(history, |_, before, event| {
        let What::Claim(claimed) = &event.what else { return Ok(()) };
        let (Claim::Acquired(grant), Some(last)) = (&claimed.answer, before.last()) else { return Ok(()) };
        if before.repeats(event.at, claimed.owner) {
            let same = (grant.fencing, grant.attempt) == (last.fencing, last.attempt);
            return ensure(same, || format!("the same claim was granted as {last:?}"));
        }
        ensure(grant.fencing > last.fencing, || format!("an earlier grant is {last:?}"))
    })
    .map(drop)
}

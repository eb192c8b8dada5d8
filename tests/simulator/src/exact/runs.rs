//! I7 to I14: the effects of runs, their answers, and their ends.
use std::collections::{BTreeMap, BTreeSet};

use idempotent_core::{Claim, Disposition, InFlight, Outcome, ReleaseKind, Settled};

use super::ensure;
use crate::events::{How, Told, What};
use crate::ledger::{Phase, later, walk};

/// Checks that the resource accepts no late effect, and rejects no current one.
pub(super) fn no_late_effect_on_a_fenced_resource(history: &Told) -> Result<(), String> {
    let mut highest = BTreeMap::new();
    walk(history, |_, before, event| {
        let What::Effect { key, fencing: Some(fencing), accepted, .. } = &event.what else { return Ok(()) };
        if !history.plan.fenced {
            return Ok(());
        }
        let highest = highest.entry(*key).or_insert(*fencing);
        if !accepted {
            let current = before.last().is_some_and(|grant| grant.fencing == *fencing);
            return ensure(!current, || "the resource refused the latest grant".to_owned());
        }
        ensure(fencing >= highest, || format!("after an effect of {highest}"))?;
        *highest = *fencing;
        Ok(())
    })
    .map(drop)
}

/// Checks that outcomes agree with the answers of the store, and that a delivery is settled only by such an outcome. A
/// run without protection is an exception that its policy allows: it is acknowledged without a record.
pub(super) fn settled_only_when_known(history: &Told) -> Result<(), String> {
    let mut replayed: BTreeMap<u128, u64> = BTreeMap::new();
    walk(history, |_, before, event| match &event.what {
        What::Ended { key: Some(key), fencing, outcome } => {
            let known = match outcome {
                Outcome::Replayed | Outcome::ConsumedWithoutResult => {
                    let replayed = replayed.entry(*key).or_default();
                    *replayed += 1;
                    // A copy inside a batch gets the result of the first item without a request to the store.
                    *replayed <= before.told_consumed || (history.plan.batched() && !before.completed.is_empty())
                }
                // A run without protection has no record.
                Outcome::Failed if fencing.is_none() && history.plan.unprotected() => true,
                other => before.knows(*fencing, other),
            };
            ensure(known, || format!("the store never reported this: {:?} of {:?}", before.phase, before.last()))
        }
        What::Delivered { outcome, disposition, .. } => {
            let right = match disposition {
                Disposition::Ack => match outcome {
                    Some(Outcome::Ran | Outcome::Replayed | Outcome::ConsumedWithoutResult) => {
                        !before.completed.is_empty()
                    }
                    Some(Outcome::Unprotected) => history.plan.unprotected(),
                    _ => false,
                },
                Disposition::DeadLetter { .. } => {
                    matches!(outcome, Some(Outcome::Failed | Outcome::Dead { .. } | Outcome::Mismatch))
                }
                _ => true,
            };
            ensure(right, || "settled by nothing".to_owned())
        }
        _ => Ok(()),
    })
    .map(drop)
}

/// Checks owners, not grants: a copy of a claim that arrives after the record is deleted creates a grant without a run.
/// A late copy of the completion may then find its owner there again.
pub(super) fn consumed_means_done(history: &Told) -> Result<(), String> {
    let mut effects = BTreeSet::new();
    walk(history, |_, before, event| match &event.what {
        What::Effect { key, fencing: Some(fencing), accepted: true, .. } => {
            effects.insert((*key, *fencing));
            Ok(())
        }
        What::Complete { key, answer: Settled::Done, .. } if before.consumed(event.at).is_none() => {
            let Some(last) = before.last() else { return Err("no grant at all".to_owned()) };
            let mut its_own = before.grants.iter().filter(|grant| grant.owner == last.owner);
            ensure(its_own.any(|grant| effects.contains(&(*key, grant.fencing))), || {
                format!("no effect under {last:?}")
            })
        }
        _ => Ok(()),
    })
    .map(drop)
}

/// Checks that a grant follows the end of the previous one: its lease expired, its owner released it, or its record
/// expired. A grant while another owner is live is a case of I1, and one of a consumed key is a case of I4b. An owner
/// releases only a run that has not started or has failed.
pub(super) fn every_run_has_a_cause(history: &Told) -> Result<(), String> {
    let ends: BTreeMap<_, _> = history
        .events
        .iter()
        .enumerate()
        .filter_map(|(place, event)| match event.what {
            What::HandlerEnd { key, fencing: Some(fencing), how } => Some(((key, fencing), (place, how))),
            _ => None,
        })
        .collect();
    walk(history, |place, before, event| match &event.what {
        What::Claim(claimed) => {
            let Claim::Acquired(grant) = &claimed.answer else { return Ok(()) };
            let ended = match before.phase {
                Phase::Failed { until } | Phase::Dead { until } => until <= event.at,
                _ => true,
            };
            ensure(ended, || format!("granted though {:?}", before.phase))?;
            if let Some(vacant) = before.vacant(event.at) {
                ensure(vacant.not_before <= event.at, || format!("granted too soon: {vacant:?}"))?;
                ensure(grant.attempt == vacant.attempt + 1, || format!("the count went wrong: {vacant:?}"))?;
            }
            // A takeover continues the count of attempts, even if other state was forgotten.
            let over = before.holder(event.at).filter(|_| !before.repeats(event.at, claimed.owner));
            if let Some(over) = over.filter(|over| over.until <= event.at) {
                ensure(!claimed.parks, || format!("taken over from {over:?}, but a takeover is not allowed"))?;
                ensure(grant.attempt == over.attempt + 1, || format!("not counted: {over:?}"))?;
            }
            let most = claimed.max_attempts;
            ensure(most == 0 || grant.attempt <= most, || format!("attempt {} of {most}", grant.attempt))
        }
        What::Release {
            key, verdict: ReleaseKind::Delete | ReleaseKind::Vacate | ReleaseKind::Refund, answer, ..
        } => {
            let Some(grant) = before.holder(event.at).filter(|_| *answer == Settled::Done) else { return Ok(()) };
            match ends.get(&(*key, grant.fencing)) {
                None => Ok(()),
                Some((ended, how)) if *ended > place => Err(format!("released while its handler ran: {how:?}")),
                Some((_, How::Failed | How::Panicked)) => Ok(()),
                _ if history.plan.release_on_cancel() => Ok(()),
                Some((_, how)) => Err(format!("released though its handler ended so: {how:?}")),
            }
        }
        _ => Ok(()),
    })
    .map(drop)
}

/// Checks that each grant has at most one effect. Runs without protection have none.
pub(super) fn effects_have_grants(history: &Told) -> Result<(), String> {
    let mut effects = BTreeSet::new();
    walk(history, |_, before, event| {
        let What::Effect { key, fencing, .. } = &event.what else { return Ok(()) };
        let Some(fencing) = fencing else {
            return ensure(history.plan.unprotected(), || "a run without a lease".to_owned());
        };
        let granted = before.grants.iter().any(|grant| grant.fencing == *fencing);
        ensure(granted, || "never granted".to_owned())?;
        ensure(effects.insert((*key, *fencing)), || "the second effect of one grant".to_owned())
    })
    .map(drop)
}

/// Checks that neither the store nor the executor reports another payload as a duplicate, and that the same payload is
/// never reported as another one.
pub(super) fn another_payload_is_no_duplicate(history: &Told) -> Result<(), String> {
    walk(history, |_, before, event| match &event.what {
        What::Claim(claimed) => {
            let stands = match before.phase {
                Phase::Held => before.live_holder(event.at).is_some(),
                Phase::Consumed { until, .. } | Phase::Failed { until } => until > event.at,
                Phase::Free | Phase::Dead { .. } => false,
            };
            let prints = (before.last().and_then(|grant| grant.fingerprint), claimed.fingerprint);
            let differs = matches!(prints, (Some(kept), Some(new)) if kept != new);
            match claimed.answer {
                Claim::Consumed(_) | Claim::InFlight(_) | Claim::Failed { .. } if stands => {
                    ensure(!differs, || format!("another payload than that of {:?}", before.last()))
                }
                Claim::Mismatch => ensure(stands && differs, || format!("no mismatch with {:?}", before.last())),
                _ => Ok(()),
            }
        }
        What::Delivered { value: Some(value), payload, .. } if history.plan.compares() => {
            let its_own = value.is_empty() || value.starts_with(&format!("{payload} "));
            ensure(its_own, || "another payload's result".to_owned())
        }
        _ => Ok(()),
    })
    .map(drop)
}

/// Checks that every delivery is settled in time, that every delivered key has an end, and that no delivery waits for
/// an expired lease.
pub(super) fn everything_ends(history: &Told) -> Result<(), String> {
    ensure(history.unsettled.is_empty(), || format!("never settled: {}", history.unsettled.join(", ")))?;
    let keys = walk(history, |_, before, event| {
        let What::Claim(claimed) = &event.what else { return Ok(()) };
        let Claim::InFlight(InFlight::Leased { rest }) = claimed.answer else { return Ok(()) };
        // If the lease has another payload, the case belongs to I12.
        let holder = before.live_holder(event.at);
        let honest = holder.is_some_and(|grant| later(event.at, rest) == grant.until);
        ensure(honest, || format!("in flight, but the holder is {holder:?}"))
    })?;
    for (key, standing) in keys {
        let settled_otherwise = history.events.iter().any(|event| match &event.what {
            What::Delivered { key: of, outcome: Some(outcome), disposition, .. } if *of == key => {
                let bare = history.plan.unprotected() && *outcome == Outcome::Failed;
                let put_off = matches!(disposition, Disposition::Retry { .. });
                !(bare || put_off || matches!(outcome, Outcome::Unprotected | Outcome::Mismatch))
            }
            _ => false,
        });
        let buried = standing
            .released
            .iter()
            .any(|(_, verdict)| matches!(verdict, ReleaseKind::MarkFailed | ReleaseKind::MarkDead));
        let ended = !standing.completed.is_empty() || buried || !standing.told_dead.is_empty();
        // A run without protection leaves the key unchanged, and two payloads may dead-letter each other by claims.
        ensure(ended || !settled_otherwise, || format!("key {:04x} has no end", key >> 112))?;
    }
    Ok(())
}

/// Checks that an owner, late or not, is never rejected while its record is retained, unless another owner took over.
pub(super) fn an_owner_in_its_lease_is_heard(history: &Told) -> Result<(), String> {
    walk(history, |_, before, event| {
        if let What::Ended {
            outcome: Outcome::LeaseLost | Outcome::Unrecorded | Outcome::StoreDown(_), fencing, ..
        } = &event.what
        {
            // Without faults, the executor gets the answers of its store, and keeps its lease as long as it may.
            let mut grants = before.grants.iter().filter(|grant| Some(grant.fencing) == *fencing);
            let capped = grants.any(|grant| later(grant.at, history.plan.shortest_run()) <= event.at);
            return ensure(capped || !history.plan.is_harmless(), || "given up for nothing".to_owned());
        }
        let Some(grant) = before.holder(event.at) else { return Ok(()) };
        let refused = match &event.what {
            What::Renew { owner, number, answer, .. }
            | What::Complete { owner, number, answer, .. }
            | What::Release { owner, number, answer, .. } => {
                *owner == grant.owner && number.is_none_or(|of| of == grant.fencing) && *answer != Settled::Done
            }
            What::Claim(claimed) => match claimed.answer {
                Claim::Acquired(_) => false,
                // An owner in its lease is not buried either.
                Claim::Dead(_) => grant.until > event.at,
                _ => claimed.owner == grant.owner,
            },
            _ => false,
        };
        ensure(!refused, || format!("refused, though it holds it: {grant:?}"))
    })
    .map(drop)
}

//! Checks of the invariants with the knowledge of a simulator: the order in which the store applied requests, and the
//! reactions of the executor. Each check is one pure function. The checks do not depend on the decisions of a store or
//! the executor, and each one reports only violations of its own invariant.
mod records;
#[cfg(test)]
mod red;
mod runs;

use std::collections::{BTreeMap, BTreeSet};

use idempotent_core::Disposition;

use self::records::{
    consumed_is_never_undone, fencing_rises, no_completion_by_a_superseded_owner, no_foreign_release,
    no_grant_within_retention, one_holder, the_first_result_stands,
};
use self::runs::{
    an_owner_in_its_lease_is_heard, another_payload_is_no_duplicate, consumed_means_done, effects_have_grants,
    every_run_has_a_cause, everything_ends, no_late_effect_on_a_fenced_resource, settled_only_when_known,
};
use super::events::{Told, What};

pub(super) type Check = fn(&Told) -> Result<(), String>;

pub(super) const ALL: &[(&str, Check)] = &[
    ("I1", one_holder),
    ("I2", no_foreign_release),
    ("I3", no_completion_by_a_superseded_owner),
    ("I4", consumed_is_never_undone),
    ("I4b", no_grant_within_retention),
    ("I5", the_first_result_stands),
    ("I6", fencing_rises),
    ("I7", no_late_effect_on_a_fenced_resource),
    ("I8", settled_only_when_known),
    ("I9", consumed_means_done),
    ("I10", every_run_has_a_cause),
    ("I11", effects_have_grants),
    ("I12", another_payload_is_no_duplicate),
    ("I13", everything_ends),
    ("I14", an_owner_in_its_lease_is_heard),
    ("one outcome", one_outcome),
    ("no spinning", no_spinning),
];

pub(super) fn violations(history: &Told) -> Vec<(&'static str, String)> {
    ALL.iter().filter_map(|(name, check)| check(history).err().map(|error| (*name, error))).collect()
}

fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}

/// Checks that each run has exactly one terminal outcome, which the counters and the observer get, and that each
/// delivery ends once.
pub(super) fn one_outcome(history: &Told) -> Result<(), String> {
    let mut ends = BTreeSet::new();
    for event in &history.events {
        match &event.what {
            What::Chaos("AN UNEXPECTED PANIC") => return Err("something panicked".to_owned()),
            What::StoreError { kind, .. } => return Err(format!("the store itself failed: {kind}")),
            What::Purged { failed: true } => return Err("the store's purge failed".to_owned()),
            What::Delivered { delivery, disposition, .. } if !matches!(disposition, Disposition::Retry { .. }) => {
                ensure(ends.insert(*delivery), || format!("delivery {delivery} is settled twice"))?;
            }
            _ => {}
        }
    }
    for (worker, (begun, ended, told)) in &history.counts {
        ensure(begun == ended && ended == told, || {
            format!("worker {worker}: {begun} runs, {ended} ended, {told} reported to the observer")
        })?;
    }
    Ok(())
}

/// The limit of claims with one token in one instant, including copies. A client that repeats a claim waits for a while
/// first.
const AT_ONCE: usize = 8;

pub(super) fn no_spinning(history: &Told) -> Result<(), String> {
    let mut at_once = BTreeMap::new();
    for event in &history.events {
        if let What::Claim(claimed) = &event.what {
            *at_once.entry((event.at, claimed.owner.0)).or_insert(0_usize) += 1;
        }
    }
    let most = at_once.into_values().max().unwrap_or_default();
    ensure(most <= AT_ONCE, || format!("one run asked {most} times in one instant"))
}

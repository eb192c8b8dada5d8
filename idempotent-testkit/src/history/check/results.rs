//! I4, I4b, I5, I9 and I12: a consumed key stays consumed, with its result, for its payload.
use std::collections::BTreeSet;

use super::book::{Consumption, Key};
use super::{Court, Invariant};
use crate::history::{Kind, Line};

pub(super) fn check(court: &mut Court<'_>) {
    let book = court.book;
    for (name, key) in &book.keys {
        for done in &key.consumptions {
            stands(court, name, key, done);
            granted_again(court, name, key, done);
        }
        for (place, line) in &key.lines {
            match line.event {
                Kind::ClaimConsumed => {
                    told_the_first_result(court, name, key, *place, line);
                    told_to_its_payload(court, name, key, *place, line);
                    done_at_all(court, name, key, *place, line);
                }
                Kind::CompleteOk => done_at_all(court, name, key, *place, line),
                Kind::Mismatch => told_of_another(court, name, key, *place, line),
                _ => {}
            }
        }
    }
}

/// I4: the record does not change within its retention.
fn stands(court: &mut Court<'_>, name: &str, key: &Key<'_>, done: &Consumption<'_>) {
    let Some(((place, _), (from, over))) = done.ok.zip(done.stands(court.judge)) else {
        return court.pass(Invariant::I4);
    };
    for (at, line) in &key.lines {
        let says_so =
            matches!(line.event, Kind::Released | Kind::Failed | Kind::RenewOk | Kind::ClaimDelayed | Kind::Dead);
        if says_so {
            let wrong = line.t0 > from && line.t < over;
            let text = || format!("{} though consumed", line.event);
            court.judge(Invariant::I4, name, &[place, *at], wrong.then(text));
        }
    }
}

/// I4b: after the completed grant, the key is not granted within the retention. If another grant overlaps the
/// completion, either the key was granted although it was consumed, or completed although it was granted to another
/// owner.
fn granted_again(court: &mut Court<'_>, name: &str, key: &Key<'_>, done: &Consumption<'_>) {
    let Some(((place, _), (ok, over))) = done.ok.zip(done.stands(court.judge)) else {
        return court.pass(Invariant::I4b);
    };
    let is_its_own = |token, fence| token == done.token && done.fence.is_none_or(|number| number == fence);
    let own = key.grants.iter().filter(|grant| is_its_own(grant.token, grant.fence)).map(|grant| grant.by).max();
    // Without a fencing token, the completion may belong to a later grant of its owner token.
    let vague = done.fence.is_none() && key.unheard.contains_key(&done.token);
    let since = if vague { ok } else { own.unwrap_or(ok) };
    for grant in key.grants.iter().filter(|grant| !is_its_own(grant.token, grant.fence)) {
        let wrong = grant.from > since && grant.by < over && grant.by >= done.from;
        let text = || format!("{} was granted though {} had completed", grant.fence, done.token);
        court.judge(Invariant::I4b, name, &[place, grant.place], wrong.then(text));
    }
}

/// I5: the claim returned the result of the completion in force, or at least one that may have been stored.
fn told_the_first_result(court: &mut Court<'_>, name: &str, key: &Key<'_>, place: usize, line: &Line) {
    let told = line.result.as_deref();
    let in_force = key
        .consumptions
        .iter()
        .find(|done| done.stands(court.judge).is_some_and(|(from, over)| line.t0 > from && line.t < over));
    let hidden = court.book.hides_from <= line.t;
    let may = |done: &&Consumption<'_>| done.from <= line.t;
    let candidates: Vec<_> = match in_force {
        Some(done) => vec![done],
        None => key.consumptions.iter().filter(may).collect(),
    };
    let results: BTreeSet<_> = candidates.iter().flat_map(|done| &done.results).copied().collect();
    if (hidden && in_force.is_none()) || (!candidates.is_empty() && (told.is_none() || results.contains(&None))) {
        return court.pass(Invariant::I5);
    }
    let lines: Vec<_> = candidates.iter().filter_map(|done| done.ok).map(|(place, _)| place).chain([place]).collect();
    let wrong = !results.contains(&told);
    let text = || match candidates[..] {
        [] => "told consumed, though nobody may have completed it".to_owned(),
        _ => format!("told the result {}, but {results:?} was stored", told.unwrap_or_default()),
    };
    court.judge(Invariant::I5, name, &lines, wrong.then(text));
}

/// I12: this payload is one of those that may have been completed.
fn told_to_its_payload(court: &mut Court<'_>, name: &str, key: &Key<'_>, place: usize, line: &Line) {
    let may = key.consumptions.iter().filter(|done| done.from <= line.t);
    let prints: Option<BTreeSet<_>> = may
        .map(|done| {
            let is_its_own = |token, fence| token == done.token && done.fence.is_none_or(|number| number == fence);
            key.grants.iter().find(|grant| is_its_own(grant.token, grant.fence)).and_then(|grant| grant.fp)
        })
        .collect();
    let (Some(prints), Some(own), true) = (prints, line.fp.as_deref(), court.book.hides_from > line.t) else {
        return court.pass(Invariant::I12);
    };
    let wrong = !prints.is_empty() && !prints.contains(own);
    let text = || format!("payload {own} was told to be a duplicate of {prints:?}");
    court.judge(Invariant::I12, name, &[place], wrong.then(text));
}

/// I12: a run with another payload may hold the key, or its result may be retained.
fn told_of_another(court: &mut Court<'_>, name: &str, key: &Key<'_>, place: usize, line: &Line) {
    let Some(own) = line.fp.as_deref() else { return court.pass(Invariant::I12) };
    let unheard = key
        .lines
        .iter()
        .any(|(_, other)| other.event == Kind::ClaimUnknown && other.t0 <= line.t && other.fp.as_deref() != Some(own));
    if unheard || court.book.hides_from <= line.t {
        return court.pass(Invariant::I12);
    }
    let other = key.grants.iter().find(|grant| {
        let failed = key
            .lines
            .iter()
            .any(|(_, end)| matches!(end.event, Kind::Failed | Kind::ReleaseUnknown) && end.token == Some(grant.token));
        let consumed = key.consumptions.iter().filter(|done| done.token == grant.token);
        let stands = consumed.map(|done| done.over_by(court.judge)).fold(grant.over_by(court.judge), u64::max);
        let given_back = key.lines.iter().any(|(_, end)| {
            end.event == Kind::Released
                && (end.token, end.fence) == (Some(grant.token), Some(grant.fence))
                && end.t < line.t0
        });
        grant.fp != Some(own) && grant.from <= line.t && (failed || (!given_back && stands >= line.t0))
    });
    let text = || format!("payload {own} was told to be another, but no other may stand");
    court.judge(Invariant::I12, name, &[place], other.is_none().then(text));
}

/// I9: some run had an effect.
fn done_at_all(court: &mut Court<'_>, name: &str, key: &Key<'_>, place: usize, line: &Line) {
    let known = if court.book.has_truth { key.truth.is_some() } else { court.book.has_effects };
    // A crashed worker may have had its effect without recording it.
    if !known || (key.truth.is_none() && court.book.hides_from <= line.t) {
        return court.pass(Invariant::I9);
    }
    let done = match key.truth {
        Some(tokens) => !tokens.is_empty(),
        None => key.lines.iter().any(|(_, other)| other.event == Kind::Effect && other.t0 <= line.t),
    };
    court.judge(Invariant::I9, name, &[place], (!done).then(|| format!("{}, and nothing was done", line.event)));
}

//! I1, I6 and I10: grants, their order, and the reasons of repeated grants.
use super::book::{Grant, Key, is_given_back, is_undone};
use super::{Court, Invariant, Judge};
use crate::history::{Kind, Line};

pub(super) fn check(court: &mut Court<'_>) {
    let book = court.book;
    for (name, key) in &book.keys {
        for (index, one) in key.grants.iter().enumerate() {
            let wrong = (one.fence >= 1 << 53).then(|| format!("{} is too high for a double", one.fence));
            court.judge(Invariant::I6, name, &[one.place], wrong);
            for other in &key.grants[index + 1..] {
                beside(court, name, one, other);
                numbered(court, name, key, one, other);
            }
        }
        for (place, line) in &key.lines {
            if matches!(line.event, Kind::Failed | Kind::Dead) {
                after_the_end(court, name, key, *place, line);
            }
        }
        for (index, last) in key.grants.iter().enumerate() {
            in_a_row(court, name, key, index, last);
        }
    }
}

/// Reports two grants of which each was in force when the other was made.
fn beside(court: &mut Court<'_>, name: &str, one: &Grant<'_>, other: &Grant<'_>) {
    let invariant = if one.token == other.token { Invariant::I6 } else { Invariant::I1 };
    if one.lease.is_none() || other.lease.is_none() {
        return court.pass(invariant);
    }
    let excluded = excludes(court.judge, one, other) && excludes(court.judge, other, one);
    let text = || match invariant {
        Invariant::I6 => format!("one claim was granted twice inside its lease, as {} and {}", one.fence, other.fence),
        _ => format!("{} and {} held leases at the same time", one.token, other.token),
    };
    court.judge(invariant, name, &[one.place, other.place], excluded.then(text));
}

/// Returns whether `then` cannot have been granted after `first`.
fn excludes(judge: &Judge, first: &Grant<'_>, then: &Grant<'_>) -> bool {
    then.by < first.from || (first.end_from > then.by && first.lasts(judge, then.from, then.by))
}

fn numbered(court: &mut Court<'_>, name: &str, key: &Key<'_>, one: &Grant<'_>, other: &Grant<'_>) {
    let lost = key.lines.iter().any(|(_, line)| {
        line.event == Kind::RecordLost && line.t >= one.from.min(other.from) && line.t0 <= one.by.max(other.by)
    });
    if lost {
        return court.pass(Invariant::I6);
    }
    let (first, then) = if one.by < other.from { (one, other) } else { (other, one) };
    let ordered = first.by < then.from;
    let wrong = match () {
        () if one.fence == other.fence => Some(format!("{} was granted twice, to different owners", one.fence)),
        () if ordered && then.fence < first.fence => Some(format!("{} was granted after {}", then.fence, first.fence)),
        () => None,
    };
    court.judge(Invariant::I6, name, &[first.place, then.place], wrong);
}

/// Checks that failed and dead keys are not granted while they are retained.
fn after_the_end(court: &mut Court<'_>, name: &str, key: &Key<'_>, place: usize, line: &Line) {
    let Some(retention) = court.judge.retention else { return court.pass(Invariant::I10) };
    // The answer to a claim may report an older state, which has existed at the earliest since the last grant before
    // it.
    let before = key.grants.iter().filter(|grant| grant.by < line.t0).map(|grant| grant.from).max();
    let own = (line.event == Kind::Failed).then_some(line.t0);
    let Some(begun) = own.or(before) else { return court.pass(Invariant::I10) };
    let over = begun.saturating_add(retention).saturating_sub(court.judge.doubt(retention)).min(key.undone_from(begun));
    let again = key.grants.iter().find(|grant| grant.from > line.t && grant.by < over);
    let lines: Vec<_> = std::iter::once(place).chain(again.map(|grant| grant.place)).collect();
    let wrong = again.map(|grant| format!("granted again as {} though {} and remembered", grant.fence, line.event));
    court.judge(Invariant::I10, name, &lines, wrong);
}

/// Counts grants without an event between them that could have refunded an attempt.
fn in_a_row(court: &mut Court<'_>, name: &str, key: &Key<'_>, index: usize, last: &Grant<'_>) {
    let (Some(most), Some(retention)) = (court.judge.max_attempts, court.judge.retention) else {
        return court.pass(Invariant::I10);
    };
    let resets = |line: &Line| {
        is_given_back(line.event)
            || is_undone(line.event)
            || matches!(line.event, Kind::ReleaseUnknown | Kind::CompleteOk | Kind::CompleteUnknown)
    };
    let counts = |grant: &&Grant<'_>| {
        let reset = key.lines.iter().any(|(_, line)| resets(line) && line.t >= grant.from && line.t0 <= last.by);
        let remembered = last.by.saturating_sub(grant.from) < retention.saturating_sub(court.judge.doubt(retention));
        grant.by < last.from && !reset && remembered && grant.own_end_from > last.by
    };
    let before: Vec<_> = key.grants.iter().filter(counts).map(|grant| grant.place).collect();
    let runs = before.len() + 1;
    let lines: Vec<_> = before.into_iter().chain([key.grants[index].place]).collect();
    let wrong = (runs > most as usize).then(|| format!("the {runs}. run in a row, and {most} are allowed"));
    court.judge(Invariant::I10, name, &lines, wrong);
}

//! I2, I3, a part of I4, and I14: only an owner settles a key, and an owner in its lease succeeds.
use super::book::{Key, is_given_back, is_undone, ms};
use super::{Court, Invariant};
use crate::history::{Kind, Line};

pub(super) fn check(court: &mut Court<'_>) {
    let book = court.book;
    for (name, key) in &book.keys {
        for (place, line) in &key.lines {
            match line.event {
                // Not `dead`: a claim may get this answer, too, perhaps with a token that had the key before.
                Kind::Released | Kind::Failed => {
                    settled_by_its_owner(court, name, key, *place, line, Invariant::I2);
                    after_its_own_end(court, name, key, *place, line, Invariant::I4);
                }
                Kind::RenewOk | Kind::CompleteOk => {
                    settled_by_its_owner(court, name, key, *place, line, Invariant::I3);
                    after_its_own_end(court, name, key, *place, line, Invariant::I3);
                }
                Kind::RenewLost | Kind::CompleteLost => refused(court, name, key, *place, line),
                Kind::Forget => forgotten(court, name, key, *place, line),
                _ => {}
            }
        }
    }
}

fn settled_by_its_owner(
    court: &mut Court<'_>,
    name: &str,
    key: &Key<'_>,
    place: usize,
    line: &Line,
    invariant: Invariant,
) {
    let own = key.grants_of(line);
    if own.is_empty() {
        let never = line.token.is_none_or(|token| {
            !key.unheard.contains_key(&token) && !key.grants.iter().any(|grant| grant.token == token)
        });
        let wrong = never.then(|| format!("{} by a token that was never granted the key", line.event));
        return court.judge(invariant, name, &[place], wrong);
    }
    if key.is_vague(line) {
        return court.pass(invariant);
    }
    let other = key.superseding(&own, line);
    let lines: Vec<_> = other.map(|grant| grant.place).into_iter().chain([place]).collect();
    let wrong = other.map(|grant| format!("{} after {} was granted to {}", line.event, grant.fence, grant.token));
    court.judge(invariant, name, &lines, wrong);
}

/// Checks that an owner does not complete or renew after a release (I3), and does not release after a completion (I4).
fn after_its_own_end(
    court: &mut Court<'_>,
    name: &str,
    key: &Key<'_>,
    place: usize,
    line: &Line,
    invariant: Invariant,
) {
    if key.is_vague(line) {
        return court.pass(invariant);
    }
    let ends = |kind| match invariant {
        Invariant::I4 => kind == Kind::CompleteOk,
        _ => is_given_back(kind),
    };
    let end = key.lines.iter().find(|(_, end)| {
        ends(end.event)
            && end.token == line.token
            && (end.fence, end.fence.is_some()) == (line.fence, true)
            && end.t < line.t0
    });
    let lines: Vec<_> = end.map(|(place, _)| *place).into_iter().chain([place]).collect();
    let wrong = end.map(|(_, end)| format!("{} after its owner's {}", line.event, end.event));
    court.judge(invariant, name, &lines, wrong);
}

/// I14: the store rejected the owner although nothing can have ended its lease.
fn refused(court: &mut Court<'_>, name: &str, key: &Key<'_>, place: usize, line: &Line) {
    let own = key.grants_of(line);
    let ([grant], false) = (&own[..], key.is_vague(line)) else { return court.pass(Invariant::I14) };
    if grant.lease.is_none() {
        return court.pass(Invariant::I14);
    }
    // A copy of an applied completion is no reason while its record is retained: a repeated completion succeeds.
    let may_be_forgotten = |completed: &Line| {
        completed.retain_ms.map(ms).is_none_or(|retain| {
            completed.t0.saturating_add(retain).saturating_sub(court.judge.doubt(retain)) <= line.t
        })
    };
    let ends = |other: &Line| {
        let own = other.token == line.token && other.fence.is_none_or(|fence| fence == grant.fence);
        let given = is_given_back(other.event) || other.event == Kind::ReleaseUnknown;
        let completed = matches!(other.event, Kind::CompleteOk | Kind::CompleteUnknown);
        (is_undone(other.event) && other.t >= grant.from)
            || (own && (given || (completed && (line.event == Kind::RenewLost || may_be_forgotten(other)))))
    };
    let end_from = key.lines.iter().filter(|(_, other)| ends(other)).map(|(_, other)| other.t0).min();
    let kept = end_from.is_none_or(|end| end > line.t);
    let wrong = kept && grant.by <= line.t && grant.lasts(court.judge, line.t0, line.t);
    let text = || format!("{}, though {} was in its lease", line.event, grant.fence);
    court.judge(Invariant::I14, name, &[grant.place, place], wrong.then(text));
}

/// Checks that an operator forgets only the grant that was read (I4), and no held key unless the operator forces it
/// (I2).
fn forgotten(court: &mut Court<'_>, name: &str, key: &Key<'_>, place: usize, line: &Line) {
    let seen: Vec<_> = key.grants.iter().filter(|grant| Some(grant.fence) == line.fence).collect();
    if seen.is_empty() {
        return court.pass(Invariant::I4);
    }
    let other = key.superseding(&seen, line);
    let lines: Vec<_> = seen.iter().chain(&other).map(|grant| grant.place).chain([place]).collect();
    let wrong = other.map(|grant| format!("forgotten by an old number, after {} was granted", grant.fence));
    court.judge(Invariant::I4, name, &lines, wrong);
    if court.judge.forced {
        return court.pass(Invariant::I2);
    }
    let undone_before = key.lines.iter().any(|(at, other)| {
        *at != place && is_undone(other.event) && seen.iter().any(|grant| other.t >= grant.from) && other.t0 <= line.t
    });
    let held = seen.iter().find(|grant| {
        grant.by < line.t0 && grant.own_end_from > line.t && grant.lasts(court.judge, line.t0, line.t) && !undone_before
    });
    let wrong = held.map(|grant| format!("forgotten though {} held it, and not forced", grant.token));
    court.judge(Invariant::I2, name, &lines, wrong);
}

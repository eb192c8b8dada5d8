//! I8, I13 and a part of I14: every key is settled, and only by its end.
use super::book::Key;
use super::{Court, Invariant};
use crate::history::{Kind, Line};

pub(super) fn check(court: &mut Court<'_>) {
    let book = court.book;
    let settled = court.judge.settled.unwrap_or(book.has_truth);
    for (name, key) in &book.keys {
        for (place, line) in &key.lines {
            match line.event {
                Kind::Ack => acknowledged(court, name, key, *place, line),
                Kind::ClaimInflight => held_by_somebody(court, name, key, *place, line),
                _ => {}
            }
        }
        ends(court, name, key, settled);
    }
}

/// I8: a worker acknowledges only for a known reason. All reasons are in lines that end before the acknowledgement
/// does.
fn acknowledged(court: &mut Court<'_>, name: &str, key: &Key<'_>, place: usize, line: &Line) {
    let took_part = |other: &Line| {
        other.worker == line.worker
            && matches!(
                other.event,
                Kind::ClaimWon | Kind::ClaimConsumed | Kind::ClaimInflight | Kind::ClaimUnknown | Kind::ClaimDelayed
            )
    };
    let itself = key.lines.iter().any(|(_, other)| took_part(other));
    let known = key.lines.iter().any(|(_, other)| {
        matches!(other.event, Kind::CompleteOk | Kind::ClaimConsumed | Kind::DeadLettered)
            && other.t <= line.t
            && (!itself || other.worker == line.worker)
    });
    court.judge(
        Invariant::I8,
        name,
        &[place],
        (!known).then(|| "acknowledged, and nobody knew it was done".to_owned()),
    );
}

/// I13: some lease may not have expired yet. I14: a repeated claim of the owner itself does not get this answer.
fn held_by_somebody(court: &mut Court<'_>, name: &str, key: &Key<'_>, place: usize, line: &Line) {
    let unheard = |but_for_itself: bool| {
        key.unheard.iter().any(|(token, from)| {
            *from <= line.t && !(but_for_itself && Some(*token) == line.token && !court.judge.busy)
        })
    };
    // A locked row: by a concurrent claim, or by a connection that is not closed yet.
    let locked = court.judge.busy
        && key.lines.iter().any(|(at, other)| {
            *at != place && (other.event.is_unknown() || (other.t >= line.t0 && other.t0 <= line.t))
        });
    if court.book.hides_from <= line.t || locked || key.grants.iter().any(|grant| grant.lease.is_none()) {
        return court.pass(Invariant::I13);
    }
    let mut may_hold = key.grants.iter().filter(|grant| {
        let over = grant.over_by(court.judge).min(grant.ended_by);
        grant.from <= line.t && over >= line.t0 && key.superseding(&[grant], line).is_none()
    });
    let others = may_hold.any(|grant| Some(grant.token) != line.token);
    if !others && !unheard(true) && line.token.is_some_and(|token| key.unheard.contains_key(&token)) {
        let text = "a claim said again was told that somebody else has it, and nobody may have".to_owned();
        return court.judge(Invariant::I14, name, &[place], Some(text));
    }
    let wrong = !others && !unheard(false) && !key.grants.iter().any(|grant| Some(grant.token) == line.token);
    court.judge(Invariant::I13, name, &[place], wrong.then(|| "in flight, but every lease is over".to_owned()));
}

/// I13: every produced key was consumed, has failed, or is dead.
fn ends(court: &mut Court<'_>, name: &str, key: &Key<'_>, settled: bool) {
    let Some((place, _)) = key.lines.iter().find(|(_, line)| line.event == Kind::Produced) else { return };
    if !settled {
        return court.pass(Invariant::I13);
    }
    let ended = key.lines.iter().any(|(_, line)| {
        matches!(
            line.event,
            Kind::CompleteOk | Kind::ClaimConsumed | Kind::Failed | Kind::ClaimFailed | Kind::Dead | Kind::DeadLettered
        )
    });
    let text = "produced, and neither consumed nor failed nor dead at the end".to_owned();
    court.judge(Invariant::I13, name, &[*place], (!ended).then_some(text));
}

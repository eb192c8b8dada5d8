//! I0, I7 and I11: the effects, their number, and the grants under which they happened.
use std::collections::BTreeMap;

use super::book::Key;
use super::{Court, Invariant};
use crate::history::{Kind, Line};

pub(super) fn check(court: &mut Court<'_>) {
    let book = court.book;
    for (name, key) in &book.keys {
        let effects: Vec<_> =
            key.lines.iter().filter(|(_, line)| matches!(line.event, Kind::Effect | Kind::EffectRefused)).collect();
        for (place, line) in &effects {
            granted(court, name, key, *place, line);
        }
        once_each(court, name, key);
        in_order(court, name, &effects);
        let repeated = key.repeated_effects();
        let lines: Vec<_> = effects.iter().map(|(place, _)| *place).collect();
        let text = || format!("{repeated} effects beyond the first");
        court.judge(Invariant::I0, name, &lines, (repeated > 0).then(text));
    }
}

/// I11: the owner token was granted the key before.
fn granted(court: &mut Court<'_>, name: &str, key: &Key<'_>, place: usize, line: &Line) {
    if line.token.is_none() {
        return court.pass(Invariant::I11);
    }
    let granted = key.grants_of(line).iter().any(|grant| grant.from <= line.t);
    court.judge(Invariant::I11, name, &[place], (!granted).then(|| "an effect without a grant".to_owned()));
}

/// I11: a token has no more effects than grants.
fn once_each(court: &mut Court<'_>, name: &str, key: &Key<'_>) {
    if key.truth.is_some() && key.has_steps() {
        return court.pass(Invariant::I11);
    }
    let mut times = BTreeMap::new();
    for effect in key.effects() {
        *times.entry(effect).or_insert(0_usize) += 1;
    }
    for ((token, _), times) in times {
        let Some(token) = token else { continue };
        let grants = key.grants.iter().filter(|grant| grant.token == token).count();
        let told = key.lines.iter().filter(|(_, line)| line.event == Kind::Effect && line.token == Some(token));
        let lines: Vec<_> = told.map(|(place, _)| *place).collect();
        let text = || format!("{times} effects of {token}, which was granted {grants} times");
        court.judge(Invariant::I11, name, &lines, (times > grants).then(text));
    }
}

/// I7: an accepted effect after another one has no lower fencing token.
fn in_order(court: &mut Court<'_>, name: &str, effects: &[&(usize, &Line)]) {
    let accepted: Vec<_> = effects.iter().filter(|(_, line)| line.event == Kind::Effect).collect();
    for (place, line) in &accepted {
        let Some(fence) = line.fence else {
            court.pass(Invariant::I7);
            continue;
        };
        let before = accepted.iter().find(|(_, other)| other.t < line.t0 && other.fence > Some(fence));
        let lines: Vec<_> = before.map(|(place, _)| *place).into_iter().chain([*place]).collect();
        let text = |higher: Option<u64>| format!("an effect of {fence} after one of {}", higher.unwrap_or_default());
        court.judge(Invariant::I7, name, &lines, before.map(|(_, other)| text(other.fence)));
    }
}

//! What writers committed, held against stubs, effects, and what the broker was sent.
use std::collections::BTreeMap;

use idempotent::outbox::Status;

use super::Note;
use super::rows::Left;
use crate::delivery::hands::Point;
use crate::delivery::stage::Stage;
use crate::verdict::Verdict;

/// What a run has to have seen.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) committed: u64,
    rolled_back: u64,
    delivered: u64,
    /// Accepted by the broker more than once.
    sent_again: u64,
    in_order: u64,
    dead: u64,
    void: u64,
    died: BTreeMap<Point, u64>,
}

pub(super) fn judge(seen: &[(u32, Note)], left: &Left) -> (Tally, Vec<String>) {
    let mut tally = Tally { committed: left.written.len() as u64, ..Tally::default() };
    // By message: the members it was to the broker. The numbers in them rise.
    let mut members: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, note) in seen {
        match note {
            Note::Began { id, member } => {
                tally.delivered += 1;
                members.entry(id).or_default().push(member);
            }
            Note::RolledBack { messages } => tally.rolled_back += messages,
            Note::Dies(point) => *tally.died.entry(*point).or_default() += 1,
        }
    }
    for members in members.values_mut() {
        members.sort_unstable();
        members.dedup();
        tally.sent_again += u64::from(members.len() > 1);
    }
    let mut found = effects(left);
    found.extend(stubs(left, &mut tally));
    found.extend(order(left, &members, &mut tally));
    (tally, found)
}

fn effects(left: &Left) -> Vec<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for id in &left.effects {
        *counts.entry(id).or_default() += 1;
    }
    let mut found = Vec::new();
    for (id, count) in &counts {
        match left.written.get(*id) {
            None => found.push(format!("O3: {id} took effect, and was never committed")),
            Some(written) if written.poison => found.push(format!("O2: {id} took effect, and is not to")),
            Some(_) if *count > 1 => found.push(format!("O2: {id} took effect {count} times")),
            Some(_) => {}
        }
    }
    let lost = left.written.iter().filter(|(id, written)| {
        let needs_none = written.poison || written.void;
        !needs_none && !counts.contains_key(id.as_str())
    });
    found.extend(lost.map(|(id, _)| format!("O1: {id} was committed, and has no effect")));
    found
}

fn stubs(left: &Left, tally: &mut Tally) -> Vec<String> {
    let stray = left.stubs.keys().filter(|id| !left.written.contains_key(*id));
    let mut found: Vec<_> = stray.map(|id| format!("O3: {id} has a stub, and was never committed")).collect();
    for (id, written) in &left.written {
        let status = left.stubs.get(id);
        tally.dead += u64::from(status == Some(&Status::Dead));
        tally.void += u64::from(status == Some(&Status::Void));
        let right = match status {
            Some(Status::Void) => written.void,
            // Called off when it was with its consumer already.
            Some(Status::Dead) => written.poison,
            Some(Status::Confirmed) => !written.poison,
            _ => false,
        };
        if !right {
            found.push(format!("O5: the stub of {id} says {status:?}, and it is {written:?}"));
        }
    }
    found
}

/// Each message with the one before it in its aggregate, by their first members.
fn order(left: &Left, members: &BTreeMap<&str, Vec<&str>>, tally: &mut Tally) -> Vec<String> {
    let mut aggregates: BTreeMap<&str, Vec<(i64, &str, &str)>> = BTreeMap::new();
    for (id, written) in &left.written {
        // One that was called off may never have been sent.
        let Some(member) = members.get(id.as_str()).and_then(|members| members.first()) else { continue };
        // Behind the letter of its kind.
        let number = member.get(1..).unwrap_or_default();
        aggregates.entry(&written.aggregate).or_default().push((written.version, number, id));
    }
    let mut found = Vec::new();
    for messages in aggregates.values_mut() {
        messages.sort_unstable();
        for pair in messages.windows(2) {
            tally.in_order += 1;
            if pair[0].1 > pair[1].1 {
                found.push(format!("O4: {} was sent before {}, which was written before it", pair[1].2, pair[0].2));
            }
        }
    }
    found
}

impl Tally {
    /// What was seen, and what a run of this length has to have seen.
    pub(super) fn tell(&self, verdict: &mut Verdict, seconds: u64, stage: &Stage) {
        let some = (seconds / 5).max(1);
        let long = u64::from(seconds >= 20);
        verdict.tell("processes killed", stage.crew.kills, some * 3);
        verdict.tell("processes stopped", stage.crew.pauses, some);
        verdict.tell("connections cut", stage.harms.cuts, some);
        verdict.tell("crashes of servers", stage.harms.crashes, u64::from(seconds >= 5));
        verdict.tell("messages committed", self.committed, some * 20);
        verdict.tell("messages rolled back", self.rolled_back, some);
        verdict.tell("deliveries", self.delivered, some * 20);
        verdict.tell("sent again", self.sent_again, long);
        verdict.tell("pairs in order", self.in_order, some * 10);
        verdict.tell("dead stubs", self.dead, u64::from(seconds >= 5));
        verdict.tell("void stubs", self.void, long);
        for (point, name) in [
            (Point::BeforeSend, "deaths before a sending"),
            (Point::AtSending, "deaths in a sending"),
            (Point::AfterSend, "deaths behind a sending"),
            (Point::AtCommit, "deaths at a commit"),
            (Point::BeforeEffect, "deaths before an effect"),
            (Point::InTransaction, "deaths in a transaction"),
            (Point::BeforeSettling, "deaths before settling"),
        ] {
            verdict.tell(name, self.died.get(&point).copied().unwrap_or_default(), long);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Written;
    use super::*;

    fn left() -> Left {
        let written = |version, poison, void| Written { aggregate: "a".into(), version, poison, void };
        Left {
            written: [
                ("m1".into(), written(1, false, false)),
                ("m2".into(), written(2, false, false)),
                ("m3".into(), written(3, true, false)),
                ("m4".into(), written(4, false, true)),
            ]
            .into(),
            effects: vec!["m1".into(), "m2".into()],
            stubs: [
                ("m1".into(), Status::Confirmed),
                ("m2".into(), Status::Confirmed),
                ("m3".into(), Status::Dead),
                ("m4".into(), Status::Void),
            ]
            .into(),
        }
    }

    fn sent(of: &[(&str, &str)]) -> Vec<(u32, Note)> {
        of.iter().map(|(id, member)| (1, Note::Began { id: (*id).into(), member: (*member).into() })).collect()
    }

    fn found(seen: &[(u32, Note)], left: &Left) -> Vec<String> {
        judge(seen, left).1.into_iter().map(|found| found[..2].to_owned()).collect()
    }

    #[test]
    fn what_was_committed_took_effect_once_in_order_or_is_told_of() {
        // What is sent again is out of turn by nature.
        let seen = sent(&[("m2", "a3"), ("m1", "a2"), ("m1", "a4"), ("m3", "a5")]);
        assert_eq!(found(&seen, &left()), Vec::<String>::new());
    }

    #[test]
    fn each_thing_that_is_wrong_is_found_and_nothing_else() {
        let with = |change: fn(&mut Left)| {
            let mut left = left();
            change(&mut left);
            left
        };
        for (left, finding) in [
            (with(|left| _ = left.effects.pop()), "O1"),
            (with(|left| left.effects.push("m1".into())), "O2"),
            (with(|left| left.effects.push("m3".into())), "O2"),
            (with(|left| left.effects.push("m9".into())), "O3"),
            (with(|left| _ = left.stubs.insert("m9".into(), Status::Confirmed)), "O3"),
            (with(|left| _ = left.stubs.insert("m1".into(), Status::Unconfirmed)), "O5"),
            (with(|left| _ = left.stubs.insert("m1".into(), Status::Dead)), "O5"),
            (with(|left| _ = left.stubs.remove("m1")), "O5"),
            (with(|left| _ = left.stubs.insert("m3".into(), Status::Confirmed)), "O5"),
        ] {
            assert_eq!(found(&[], &left), [finding], "{left:?}");
        }
        assert_eq!(found(&sent(&[("m1", "a3"), ("m2", "a2")]), &left()), ["O4"]);
    }
}

//! The comparison of committed messages with outbox records, effects, and messages sent to the broker.
use std::collections::{BTreeMap, BTreeSet};

use idempotent::outbox::OutboxStatus;

use super::remaining::{Kept, Left};
use super::{MOST_SENDS, Note, UNWANTED};
use crate::delivery::consumers::RETRIES;
use crate::delivery::phases::{Deaths, Stage};
use crate::delivery::process::Point;
use crate::verdict::Verdict;

/// The required events of a run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) committed: u64,
    rolled_back: u64,
    delivered: u64,
    /// Accepted by the broker more than once, or sent more than once by the stub's count: a delay queue merges copies.
    sent_again: u64,
    in_order: u64,
    dead: u64,
    void: u64,
    given_up: u64,
    alarms: u64,
    died: Deaths,
}

/// The positions at which the broker accepted a message, by message. Positions sort in order of acceptance.
type Positions<'a> = BTreeMap<&'a str, Vec<String>>;

pub(super) fn judge(seen: &[(u32, Note)], left: &Left) -> (Tally, Vec<String>) {
    let mut tally = Tally { committed: left.written.len() as u64, ..Tally::default() };
    let mut accepted = Positions::new();
    for message in left.tape.iter().flatten() {
        accepted.entry(&message.id).or_default().push(message.position.clone());
    }
    let (mut runs, mut alarms) = (BTreeMap::new(), Vec::new());
    for (_, note) in seen {
        match note {
            Note::Began { id, member } => {
                tally.delivered += 1;
                // The number follows the letter of the kind.
                let number = member.as_ref().filter(|_| left.tape.is_none()).and_then(|member| member.get(1..));
                accepted.entry(id).or_default().extend(number.map(str::to_owned));
            }
            Note::Fails { id } => *runs.entry(id.as_str()).or_default() += 1,
            Note::RolledBack { messages } => tally.rolled_back += messages,
            Note::Alarmed { outbox, seq, sends } => alarms.push((outbox.as_str(), *seq, *sends)),
            Note::Dies(point) => tally.died.add(*point),
        }
    }
    for accepted in accepted.values_mut() {
        accepted.sort_unstable();
        accepted.dedup();
    }
    let copies = accepted.iter().filter(|(_, accepted)| accepted.len() > 1).map(|(id, _)| *id);
    let resent = left.stubs.iter().filter(|(_, stub)| stub.sends > 1).map(|(id, _)| id.as_str());
    tally.sent_again = copies.chain(resent).collect::<BTreeSet<_>>().len() as u64;
    let mut found = effects(left);
    found.extend(stubs(left, &mut tally));
    found.extend(order(left, &accepted, &mut tally));
    found.extend(given_up(left, &alarms, &mut tally));
    found.extend(letters(left, &runs));
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
    let sent: BTreeSet<_> =
        left.tape.iter().flatten().map(|message| &message.id).filter(|id| !left.written.contains_key(*id)).collect();
    found.extend(sent.into_iter().map(|id| format!("O3: {id} was sent, and was never committed")));
    for (id, written) in &left.written {
        let status = left.stubs.get(id).map(|stub| stub.status);
        tally.dead += u64::from(status == Some(OutboxStatus::Dead));
        tally.void += u64::from(status == Some(OutboxStatus::Void));
        let right = match status {
            Some(OutboxStatus::Void) => written.void,
            // Called off when it was with its consumer already.
            Some(OutboxStatus::Dead) => written.poison,
            Some(OutboxStatus::Confirmed) => !written.poison,
            _ => false,
        };
        if !right {
            found.push(format!("O5: the stub of {id} says {status:?}, and it is {written:?}"));
        }
    }
    found
}

/// Each message with the one before it in its aggregate, by the first time that each was accepted.
fn order(left: &Left, accepted: &Positions<'_>, tally: &mut Tally) -> Vec<String> {
    let mut aggregates: BTreeMap<&str, Vec<(i64, &str, &str)>> = BTreeMap::new();
    for (id, written) in &left.written {
        // One that was called off may never have been sent.
        let Some(first) = accepted.get(id.as_str()).and_then(|accepted| accepted.first()) else { continue };
        aggregates.entry(&written.aggregate).or_default().push((written.version, first, id));
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

/// Checks the messages without a receiver: each is given up after the maximum of sends, with an alert, and no other
/// message has one. A relay may die after the alert and before it marks the message. Then another relay sends the
/// alert again, and marks the message.
fn given_up(left: &Left, alarms: &[(&str, i64, u32)], tally: &mut Tally) -> Vec<String> {
    tally.alarms = alarms.len() as u64;
    let told = |stub: &Kept| alarms.iter().any(|(outbox, seq, _)| (*outbox, *seq) == (UNWANTED, stub.seq));
    let mut found = Vec::new();
    for id in &left.unwanted {
        match left.unwanted_stubs.get(id) {
            Some(stub) if stub.status != OutboxStatus::Dead || stub.sends != MOST_SENDS => {
                found.push(format!("O6: nobody takes {id}, and it is {stub:?}"));
            }
            Some(stub) if !told(stub) => found.push(format!("O6: {id} was given up, and nobody was told")),
            Some(_) => tally.given_up += 1,
            None => found.push(format!("O6: nobody takes {id}, and it has no stub")),
        }
    }
    let committed: BTreeSet<_> = left.unwanted.iter().collect();
    let stray = left.unwanted_stubs.keys().filter(|id| !committed.contains(id));
    found.extend(stray.map(|id| format!("O3: {id} has a stub, and was never committed")));
    let dead = left.unwanted_stubs.values().filter(|stub| stub.status == OutboxStatus::Dead);
    let dead: BTreeSet<_> = dead.map(|stub| (UNWANTED, stub.seq, stub.sends)).collect();
    let wrong = alarms.iter().filter(|alarm| !dead.contains(alarm));
    found.extend(wrong.map(|(outbox, seq, sends)| {
        format!("O6: an alarm of {seq} in {outbox}, after {sends} sendings, and it was not given up then")
    }));
    found
}

/// `runs`: of what always fails.
fn letters(left: &Left, runs: &BTreeMap<&str, u32>) -> Vec<String> {
    let letters: BTreeSet<_> = left.letters.iter().collect();
    // What was called off may have been with its consumer already.
    let dies = left.written.iter().filter(|(_, written)| written.poison && !written.void);
    let missing = dies.filter(|(id, _)| !letters.contains(id));
    let mut found: Vec<_> =
        missing.map(|(id, _)| format!("O8: {id} always fails, and is not among the dead letters")).collect();
    let wrong = letters.iter().filter(|id| !left.written.get(**id).is_some_and(|written| written.poison));
    found.extend(wrong.map(|id| format!("O8: {id} is among the dead letters, and is not to be")));
    let often = runs.iter().filter(|(_, runs)| **runs > RETRIES + 1);
    found.extend(often.map(|(id, runs)| format!("O8: {id} ran {runs} times, and may {} times", RETRIES + 1)));
    found
}

impl Tally {
    /// Adds the seen events and the required events of a run of this length.
    pub(super) fn tell(&self, verdict: &mut Verdict, seconds: u64, stage: &Stage) {
        let some = (seconds / 5).max(1);
        let long = u64::from(seconds >= 20);
        stage.tell(verdict, some * 3, some, ("crashes of servers", u64::from(seconds >= 5)));
        verdict.tell("messages committed", self.committed, some * 20);
        verdict.tell("messages rolled back", self.rolled_back, some);
        verdict.tell("deliveries", self.delivered, some * 20);
        verdict.tell("sent again", self.sent_again, long);
        verdict.tell("pairs in order", self.in_order, some * 10);
        verdict.tell("dead stubs", self.dead, u64::from(seconds >= 5));
        verdict.tell("void stubs", self.void, long);
        verdict.tell("given up", self.given_up, u64::from(seconds >= 5));
        verdict.tell("alarms", self.alarms, u64::from(seconds >= 5));
        // By the batch, of which there are few while a broker is away.
        let sendings = [
            (Point::BeforeSend, "deaths before a sending"),
            (Point::AtSending, "deaths in a sending"),
            (Point::AfterSend, "deaths behind a sending"),
        ];
        verdict.tell("deaths around a sending", sendings.iter().map(|(point, _)| self.died.of(*point)).sum(), long);
        self.died.tell(verdict, &sendings, 0);
        self.died.tell(verdict, &[(Point::AfterAlarm, "deaths behind an alarm")], 0);
        let points = [
            (Point::AtCommit, "deaths at a commit"),
            (Point::BeforeEffect, "deaths before an effect"),
            (Point::InTransaction, "deaths in a transaction"),
            (Point::BeforeSettling, "deaths before settling"),
        ];
        self.died.tell(verdict, &points, long);
    }
}

#[cfg(test)]
mod tests;

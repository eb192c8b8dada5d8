//! The comparison of the notes with the remaining messages.
use std::collections::{BTreeMap, BTreeSet};

use super::RETRIES;
use super::note::{Body, Note, Off, Time, Topic, own_id};
use crate::delivery::effects;
use crate::delivery::phases::{Deaths, Stage};
use crate::delivery::process::Point;
use crate::verdict::Verdict;

/// A dead letter.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) topic: Topic,
    pub(super) id: String,
    pub(super) attempts: u32,
    pub(super) body: Vec<u8>,
}

/// The final state.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) effects: Vec<(String, u64)>,
    pub(super) letters: Vec<Letter>,
    pub(super) leftovers: Vec<String>,
}

/// The required events of a run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) unsure: u64,
    merged: u64,
    came_again: u64,
    off_in_time: u64,
    rolled_back: u64,
    dead: u64,
    died: Deaths,
}

/// The message that a producer is about to send.
#[derive(Clone, Copy, Debug)]
struct Intended {
    poison: bool,
    not_before: Time,
}

type Place = (Topic, String);

#[derive(Default)]
struct Book {
    intended: BTreeMap<u64, Intended>,
    /// Sent more than once, so that it may have had two lives.
    again: BTreeSet<u64>,
    /// Accepted, and as which message.
    kept: BTreeMap<Place, Option<u64>>,
    /// Perhaps called off.
    off: BTreeSet<Place>,
    /// Surely called off, and when that was heard.
    off_at: Vec<(Place, Time)>,
    /// Deliveries, and when they were with a handler.
    began: Vec<(Place, u64, u32, Time)>,
    /// The number of claims of the key, by name.
    runs: BTreeMap<String, u32>,
    /// The time before which a delivery must not be repeated.
    back: BTreeMap<(Place, u32), Time>,
    tally: Tally,
    found: Vec<String>,
}

pub(super) fn judge(seen: &[(u32, Note)], left: &Left) -> (Tally, Vec<String>) {
    let mut book = Book::default();
    for (by, note) in seen {
        book.enter(*by, note);
    }
    book.times();
    book.effects(left);
    book.letters(left);
    let leftovers = left.leftovers.iter().map(|what| format!("Q6: {what}"));
    book.found.extend(leftovers);
    book.tally.dead = left.letters.len() as u64;
    (book.tally, book.found)
}

impl Book {
    fn enter(&mut self, by: u32, note: &Note) {
        let place = |topic: &Topic, id: &String| (*topic, id.clone());
        match note {
            Note::Intends { n, poison, not_before, .. } => {
                self.intended.insert(*n, Intended { poison: *poison, not_before: *not_before });
            }
            Note::Again { n } => {
                self.again.insert(*n);
                self.tally.unsure += 1;
            }
            Note::Kept { n, topic, id, at, new } => {
                let entry = self.kept.entry(place(topic, id)).or_default();
                // A message that is merged is kept under an earlier one's id. Under its own id it is the message itself,
                // although the answer to its first sending was lost.
                if *new || *id == own_id(*n) {
                    *entry = Some(*n);
                }
                if *new {
                    self.tally.sent += 1;
                    let early = self.intended.get(n).is_none_or(|intended| *at < intended.not_before);
                    if early {
                        self.found.push(format!("Q2: {id} was accepted for a time before its own"));
                    }
                } else {
                    self.tally.merged += 1;
                }
            }
            Note::Refused { n, why } => self.found.push(format!("Q1: {n} was refused: {why}")),
            Note::Cancelling { topic, id } => {
                self.off.insert(place(topic, id));
            }
            Note::Cancelled { topic, id, how: Off::Unknown, sure: true, .. } => {
                self.off.remove(&place(topic, id));
            }
            Note::Cancelled { topic, id, how: Off::Done | Off::Delivering, heard, .. } => {
                self.off_at.push((place(topic, id), *heard));
            }
            Note::Cancelled { .. } => {}
            Note::Began { topic, id, n, delivered, at, whole } => {
                if !whole {
                    self.found.push(format!("Q3: {id} was delivered to process {by} with another body"));
                }
                self.tally.came_again += u64::from(*delivered > 1);
                self.began.push((place(topic, id), *n, *delivered, *at));
            }
            Note::Runs { name } => *self.runs.entry(name.clone()).or_default() += 1,
            Note::Back { topic, id, delivered, asked, delay } => {
                self.tally.rolled_back += 1;
                self.back.insert((place(topic, id), *delivered), asked + delay);
            }
            Note::Dies(point) => self.tally.died.add(*point),
        }
    }

    /// Each delivery, against its time, that of the rollback before it, and what was called off.
    fn times(&mut self) {
        let mut began_of: BTreeMap<&Place, Vec<Time>> = BTreeMap::new();
        for (place, n, delivered, at) in &self.began {
            let Some(intended) = self.intended.get(n) else {
                self.found.push(format!("Q3: {place:?} was delivered, and nobody sent it"));
                continue;
            };
            if *at < intended.not_before {
                let early = intended.not_before - at;
                self.found.push(format!("Q2: {place:?} was delivered {early} µs before its time"));
            }
            if place.0 == Topic::Bare && *delivered > RETRIES + 1 {
                self.found.push(format!("Q4: {place:?} was delivered for the {delivered}th time"));
            }
            if self.again.contains(n) {
                continue;
            }
            began_of.entry(place).or_default().push(*at);
            let before = delivered.checked_sub(1).and_then(|before| self.back.get(&(place.clone(), before)));
            if let Some(back) = before.filter(|back| at < *back) {
                self.found.push(format!("Q2: {place:?} came again {} µs too early", back - at));
            }
        }
        for (place, heard) in &self.off_at {
            let Some(Some(n)) = self.kept.get(place) else { continue };
            let in_time = self.intended.get(n).is_some_and(|intended| *heard < intended.not_before);
            if in_time && !self.again.contains(n) {
                self.tally.off_in_time += 1;
                if began_of.contains_key(place) {
                    self.found.push(format!("Q5: {place:?} was called off before its time, and delivered"));
                }
            }
        }
    }

    fn effects(&mut self, left: &Left) {
        let counts = effects::counts(&left.effects);
        for (name, count) in &counts {
            if *count > 1 {
                self.found.push(format!("Q3: {name} took effect {count} times"));
            }
        }
        for (name, n) in &left.effects {
            if self.intended.get(n).is_none_or(|intended| intended.poison) {
                self.found.push(format!("Q3: {name} took effect, and is not to"));
            }
        }
        for (place, n) in &self.kept {
            let poison = n.and_then(|n| self.intended.get(&n)).is_some_and(|intended| intended.poison);
            let name = name_of(place.0, &place.1);
            if !poison && !self.off.contains(place) && !counts.contains_key(name.as_str()) {
                self.found.push(format!("Q1: {name} was accepted, and has no effect"));
            }
        }
    }

    fn letters(&mut self, left: &Left) {
        let mut dead: BTreeMap<Place, u32> = BTreeMap::new();
        for Letter { topic, id, attempts, body } in &left.letters {
            *dead.entry((*topic, id.clone())).or_default() += 1;
            let whole = Body::read(body);
            let sent = whole.as_ref().and_then(|body| self.intended.get(&body.n));
            match sent {
                None => self.found.push(format!("Q4: the dead letter {id} is not what somebody sent")),
                Some(sent) if !sent.poison => {
                    self.found
                        .push(format!("Q4: {id} is dead after {attempts} attempts, and its handler does not fail"));
                }
                Some(_) => {}
            }
            let all = RETRIES + 1;
            let deliveries = self.began.iter().filter(|(place, ..)| (place.0, &place.1) == (*topic, id)).count();
            let runs = self.runs.get(&name_of(*topic, id)).copied().unwrap_or_default();
            let right = match topic {
                Topic::Bare => *attempts == all,
                // Where the record cannot be read in time, the letter counts deliveries, also those that ran nothing.
                Topic::Work => {
                    let idle = u32::try_from(deliveries).unwrap_or(u32::MAX).saturating_sub(runs);
                    (1..=all.saturating_add(idle)).contains(attempts)
                }
            };
            if !right {
                self.found.push(format!("Q4: {id} is dead after {attempts} attempts, not {all}"));
            }
        }
        let again = self.began.iter().filter(|(_, n, ..)| self.again.contains(n));
        let again: BTreeSet<_> = again.map(|((topic, id), ..)| name_of(*topic, id)).collect();
        for (name, runs) in self.runs.iter().filter(|(name, _)| !again.contains(*name)) {
            if *runs > RETRIES + 1 {
                self.found.push(format!("Q4: {name} ran {runs} times, and may {} times", RETRIES + 1));
            }
        }
        for (place, n) in &self.kept {
            let Some(n) = n else { continue };
            let poison = self.intended.get(n).is_some_and(|intended| intended.poison);
            let times = dead.get(place).copied().unwrap_or_default();
            if poison && times == 0 && !self.off.contains(place) {
                self.found.push(format!("Q4: {place:?} always fails, and is not among the dead letters"));
            }
            if times > 1 && !self.again.contains(n) {
                self.found.push(format!("Q4: {place:?} is dead {times} times"));
            }
        }
    }
}

/// The name of a message's effects.
pub(super) fn name_of(topic: Topic, id: &str) -> String {
    format!("{}/{id}", topic.name())
}

impl Tally {
    /// Adds the seen events and the required events of a run of this length.
    pub(super) fn tell(&self, verdict: &mut Verdict, seconds: u64, stage: &Stage) {
        let some = (seconds / 5).max(1);
        let long = u64::from(seconds >= 15);
        stage.tell(verdict, some * 4, some, ("crashes of Redis", u64::from(seconds >= 5)));
        verdict.tell("accepted", self.sent, some * 40);
        verdict.tell("merged or known", self.merged, some);
        verdict.tell("sent again", self.unsure, some);
        verdict.tell("deliveries that were not the first", self.came_again, some * 10);
        verdict.tell("called off in time", self.off_in_time, some);
        verdict.tell("rolled back", self.rolled_back, some * 5);
        verdict.tell("dead letters", self.dead, some);
        let points = [
            (Point::BeforeSend, "deaths before a send"),
            (Point::AfterSend, "deaths in a send"),
            (Point::AfterTake, "deaths behind a take"),
            (Point::BeforeEffect, "deaths before an effect"),
            (Point::InTransaction, "deaths in a transaction"),
            (Point::BeforeSettling, "deaths before settling"),
            (Point::AtSettling, "deaths in settling"),
        ];
        self.died.tell(verdict, &points, long);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Topic = Topic::Bare;

    fn sent(n: u64, poison: bool) -> [(u32, Note); 2] {
        let id = n.to_string();
        [
            (1, Note::Intends { n, topic: PLACE, poison, not_before: 100 }),
            (1, Note::Kept { n, topic: PLACE, id, at: 100, new: true }),
        ]
    }

    fn began(n: u64, delivered: u32, at: Time) -> (u32, Note) {
        (2, Note::Began { topic: PLACE, id: n.to_string(), n, delivered, at, whole: true })
    }

    fn off(n: u64, how: Off, heard: Time) -> [(u32, Note); 2] {
        let id = n.to_string();
        [
            (1, Note::Cancelling { topic: PLACE, id: id.clone() }),
            (1, Note::Cancelled { topic: PLACE, id, how, heard, sure: true }),
        ]
    }

    fn letter(n: u64, poison: bool, attempts: u32) -> Letter {
        Letter { topic: PLACE, id: n.to_string(), attempts, body: Body::new(n, poison).bytes() }
    }

    fn effects(of: &[u64]) -> Vec<(String, u64)> {
        of.iter().map(|n| (format!("bare/{n}"), *n)).collect()
    }

    fn found(seen: &[&[(u32, Note)]], left: &Left) -> Vec<String> {
        judge(&seen.concat(), left).1.into_iter().map(|found| found[..2].to_owned()).collect()
    }

    #[test]
    fn effects_that_happened_once_and_required_dead_letters_pass() {
        let left = Left { effects: effects(&[1]), letters: vec![letter(2, true, 17)], ..Left::default() };
        let seen = [&sent(1, false)[..], &sent(2, true), &[began(1, 1, 100), began(2, 17, 5_000)]];
        assert_eq!(found(&seen, &left), Vec::<String>::new());
    }

    #[test]
    fn each_violation_is_found_separately() {
        let well = || Left { effects: effects(&[1]), ..Left::default() };
        let one = sent(1, false);
        for (more, left, finding) in [
            (vec![], Left::default(), "Q1"),
            (vec![began(1, 1, 99)], well(), "Q2"),
            (
                vec![
                    (2, Note::Back { topic: PLACE, id: "1".into(), delivered: 1, asked: 200, delay: 50 }),
                    began(1, 2, 249),
                ],
                well(),
                "Q2",
            ),
            (vec![], Left { effects: [effects(&[1]), effects(&[1])].concat(), ..Left::default() }, "Q3"),
            (vec![began(9, 1, 500)], well(), "Q3"),
            (vec![began(1, 18, 500)], well(), "Q4"),
            (vec![(2, Note::Runs { name: "bare/1".into() }); 18], well(), "Q4"),
            (vec![], Left { letters: vec![letter(1, false, 17)], ..well() }, "Q4"),
            (sent(2, true).into(), well(), "Q4"),
            (sent(2, true).into(), Left { letters: vec![letter(2, true, 16)], ..well() }, "Q4"),
            ([&off(1, Off::Done, 99)[..], &[began(1, 1, 100)]].concat(), well(), "Q5"),
            (vec![], Left { leftovers: vec!["1 ready".into()], ..well() }, "Q6"),
        ] {
            assert_eq!(found(&[&one, &more], &left), [finding], "{more:?}");
        }
    }

    #[test]
    fn a_message_that_was_kept_by_a_sending_without_an_answer_ends_as_its_handler_does() {
        let kept_before = |n, poison| {
            let [intends, _] = sent(n, poison);
            let kept = Note::Kept { n, topic: PLACE, id: own_id(n), at: 100, new: false };
            [intends, (1, Note::Again { n }), (1, kept)]
        };
        let effect = Left { effects: vec![(name_of(PLACE, &own_id(1)), 1)], ..Left::default() };
        let dead = Left { letters: vec![Letter { id: own_id(1), ..letter(1, true, 17) }], ..Left::default() };
        for (poison, left, finding) in [
            (false, &effect, None),
            (true, &dead, None),
            (false, &Left::default(), Some("Q1")),
            (true, &Left::default(), Some("Q4")),
        ] {
            let found = found(&[&kept_before(1, poison)], left);
            assert_eq!(found, finding.into_iter().collect::<Vec<_>>(), "poison: {poison}, {left:?}");
        }
    }

    #[test]
    fn a_cancelled_message_may_lack_its_effect_and_a_failed_cancellation_may_not() {
        let one = sent(1, false);
        for (how, finding) in [(Off::Done, None), (Off::Delivering, None), (Off::Unknown, Some("Q1"))] {
            let found = found(&[&one, &off(1, how, 150)], &Left::default());
            assert_eq!(found, finding.into_iter().collect::<Vec<_>>(), "{how:?}");
        }
    }
}

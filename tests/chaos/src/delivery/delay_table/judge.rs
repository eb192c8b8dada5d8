//! The comparison of the notes with rows, effects and dead letters.
use std::collections::{BTreeMap, BTreeSet};

use super::site::Remaining;
use super::statements::Task;
use super::{Note, Time};
use crate::delivery::consumers::RETRIES;
use crate::delivery::phases::{Deaths, Stage};
use crate::delivery::process::Point;
use crate::verdict::Verdict;

/// The required events of a run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) scheduled: u64,
    alone: u64,
    rolled_back: u64,
    cancelled_in_time: u64,
    redelivered: u64,
    dead: u64,
    died: Deaths,
}

/// The notes by subject.
#[derive(Default)]
struct Seen<'a> {
    kept: BTreeSet<&'a str>,
    rolled_back: BTreeSet<&'a str>,
    /// Perhaps cancelled.
    cancelling: BTreeSet<&'a str>,
    /// The time at which the database confirmed the cancellation.
    cancelled: BTreeMap<&'a str, Time>,
    began: BTreeMap<&'a str, Vec<Time>>,
    failed: BTreeMap<&'a str, u32>,
}

pub(super) fn judge(notes: &[(u32, Note)], left: &Remaining) -> (Tally, Vec<String>) {
    let (mut seen, mut tally) = (Seen::default(), Tally::default());
    for (_, note) in notes {
        match note {
            Note::Kept { id } => _ = seen.kept.insert(id),
            Note::RolledBack { id } => _ = seen.rolled_back.insert(id),
            Note::Cancelling { id } => _ = seen.cancelling.insert(id),
            Note::Cancelled { id, heard } => _ = seen.cancelled.insert(id, *heard),
            Note::Began { id, at } => seen.began.entry(id).or_default().push(*at),
            Note::Fails { id } => *seen.failed.entry(id).or_default() += 1,
            Note::Dies(point) => tally.died.add(*point),
        }
    }
    let tasks: BTreeMap<&str, &Task> = left.tasks.iter().map(|task| (task.id.as_str(), task)).collect();
    tally.scheduled = tasks.len() as u64;
    tally.alone = seen.kept.len() as u64;
    tally.rolled_back = seen.rolled_back.len() as u64;
    tally.redelivered = seen.began.values().map(|began| began.len() as u64 - 1).sum();
    tally.dead = left.letters.len() as u64;
    let in_time = |(id, heard): &(&&str, &Time)| tasks.get(**id).is_some_and(|task| **heard < task.due.0);
    let in_time: BTreeSet<&str> = seen.cancelled.iter().filter(in_time).map(|(id, _)| *id).collect();
    tally.cancelled_in_time = in_time.len() as u64;
    let mut found = early(&tasks, &seen);
    found.extend(effects(&tasks, &seen, &in_time, left));
    found.extend(letters(&tasks, &seen, left));
    (tally, found)
}

fn early(tasks: &BTreeMap<&str, &Task>, seen: &Seen<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (id, began) in &seen.began {
        let Some(task) = tasks.get(id) else {
            found.push(format!("T3: {id} was delivered without a committed row"));
            continue;
        };
        let early = began.iter().filter(|at| **at < task.due.0);
        found.extend(early.map(|at| format!("T2: {id} was delivered {} µs before its time", task.due.0 - at)));
    }
    found
}

fn effects(tasks: &BTreeMap<&str, &Task>, seen: &Seen<'_>, in_time: &BTreeSet<&str>, left: &Remaining) -> Vec<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for id in &left.effects {
        *counts.entry(id).or_default() += 1;
    }
    let mut found = Vec::new();
    for (id, count) in &counts {
        let poison = tasks.get(id).map(|task| task.poison);
        match poison {
            None => found.push(format!("T3: {id} took effect without a committed row")),
            Some(true) => found.push(format!("T3: {id} took effect, and its handler always fails")),
            Some(false) if in_time.contains(id) => {
                found.push(format!("T3: {id} took effect, and was cancelled before its time"));
            }
            Some(false) if *count > 1 => found.push(format!("T3: {id} took effect {count} times")),
            Some(false) => {}
        }
    }
    for task in tasks.values().filter(|task| is_required(task, seen)) {
        if !task.poison && !counts.contains_key(task.id.as_str()) {
            found.push(format!("T1: {} was scheduled, and has no effect", task.id));
        }
    }
    found
}

/// Returns whether the task must take effect or become a dead letter.
fn is_required(task: &Task, seen: &Seen<'_>) -> bool {
    let scheduled = task.bound || seen.kept.contains(task.id.as_str());
    scheduled && !seen.cancelling.contains(task.id.as_str())
}

fn letters(tasks: &BTreeMap<&str, &Task>, seen: &Seen<'_>, left: &Remaining) -> Vec<String> {
    let letters: BTreeSet<&str> = left.letters.iter().map(String::as_str).collect();
    let poison = |id: &&str| tasks.get(id).is_some_and(|task| task.poison);
    let wrong = letters.iter().filter(|id| !poison(id));
    let mut found: Vec<_> =
        wrong.map(|id| format!("T4: {id} is a dead letter, and its handler does not fail")).collect();
    let required = tasks.values().filter(|task| task.poison && is_required(task, seen));
    let missing = required.filter(|task| !letters.contains(task.id.as_str()));
    found.extend(missing.map(|task| format!("T4: {} always fails, and is not a dead letter", task.id)));
    let often = seen.failed.iter().filter(|(_, runs)| **runs > RETRIES + 1);
    found.extend(often.map(|(id, runs)| format!("T4: {id} ran {runs} times, and at most {} are allowed", RETRIES + 1)));
    found
}

impl Tally {
    /// Adds the seen events and the required events of a run of this length.
    pub(super) fn tell(&self, verdict: &mut Verdict, seconds: u64, stage: &Stage) {
        let some = (seconds / 5).max(1);
        let long = u64::from(seconds >= 20);
        stage.tell(verdict, some * 3, some, ("crashes of servers", u64::from(seconds >= 5)));
        verdict.tell("scheduled", self.scheduled, some * 20);
        verdict.tell("scheduled alone", self.alone, some * 3);
        verdict.tell("rolled back", self.rolled_back, some);
        verdict.tell("cancelled in time", self.cancelled_in_time, some);
        verdict.tell("deliveries after the first", self.redelivered, some * 2);
        verdict.tell("dead letters", self.dead, u64::from(seconds >= 5));
        let points = [
            (Point::AfterSend, "deaths in scheduling"),
            (Point::AtCommit, "deaths at a commit"),
            (Point::BeforeEffect, "deaths before an effect"),
            (Point::InTransaction, "deaths in a transaction"),
            (Point::BeforeSettling, "deaths before settling"),
        ];
        self.died.tell(verdict, &points, long);
    }
}

#[cfg(test)]
mod tests {
    use idempotent::Timestamp;

    use super::*;

    fn task(id: &str, poison: bool, bound: bool) -> Task {
        Task { id: id.into(), due: Timestamp(100), poison, bound }
    }

    fn left() -> Remaining {
        Remaining {
            tasks: vec![
                task("a", false, true),
                task("dead", true, true),
                task("off", false, true),
                task("b", false, false),
            ],
            effects: vec!["a".into(), "b".into()],
            letters: vec!["dead".into()],
        }
    }

    fn notes() -> Vec<(u32, Note)> {
        let began = |id: &str, at| Note::Began { id: id.into(), at };
        [
            began("a", 100),
            began("a", 900),
            began("dead", 150),
            began("b", 100),
            Note::Cancelling { id: "off".into() },
            Note::Cancelled { id: "off".into(), heard: 99 },
            Note::Kept { id: "b".into() },
            Note::RolledBack { id: "never".into() },
        ]
        .map(|note| (1, note))
        .into()
    }

    fn found(more: &[Note], left: &Remaining) -> Vec<String> {
        let notes = [notes(), more.iter().map(|note| (2, note.clone())).collect()].concat();
        judge(&notes, left).1.into_iter().map(|found| found[..2].to_owned()).collect()
    }

    #[test]
    fn a_run_without_violations_passes() {
        assert_eq!(found(&[], &left()), Vec::<String>::new());
        // The task without a transaction may be lost if its producer died before the answer.
        let unknown = Remaining { tasks: vec![task("c", false, false)], ..Remaining::default() };
        assert_eq!(judge(&[], &unknown).1, Vec::<String>::new());
    }

    #[test]
    fn each_violation_is_found_separately() {
        let with = |change: fn(&mut Remaining)| {
            let mut left = left();
            change(&mut left);
            left
        };
        let fails = vec![Note::Fails { id: "dead".into() }; 14];
        for (more, left, finding) in [
            (vec![], with(|left| _ = left.effects.remove(0)), "T1"),
            (vec![], with(|left| _ = left.effects.pop()), "T1"),
            (vec![Note::Began { id: "a".into(), at: 99 }], left(), "T2"),
            (vec![Note::Began { id: "never".into(), at: 500 }], left(), "T3"),
            (vec![], with(|left| left.effects.push("a".into())), "T3"),
            (vec![], with(|left| left.effects.push("never".into())), "T3"),
            (vec![], with(|left| left.effects.push("dead".into())), "T3"),
            (vec![], with(|left| left.effects.push("off".into())), "T3"),
            (vec![], with(|left| left.letters.clear()), "T4"),
            (vec![], with(|left| left.letters.push("a".into())), "T4"),
            (fails, left(), "T4"),
        ] {
            assert_eq!(found(&more, &left), [finding], "{more:?} {left:?}");
        }
    }
}

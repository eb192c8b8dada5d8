//! Each step on a line against the plain telling of it, over every short history.
#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;

use super::*;
use crate::State;

fn key(number: u64) -> Key {
    Key::from_parts("points", number.into())
}

/// The same, number by number.
#[derive(Clone, Default)]
struct Plain {
    last: Option<(u64, bool)>,
    waiting: BTreeMap<u64, Option<(u64, u64)>>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Expect(u64),
    See(u64),
    Enter(u64),
    Done(u64),
}

impl Plain {
    fn is_over(&self, number: u64) -> bool {
        self.last.is_some_and(|(last, _)| last >= number)
    }

    fn step(&mut self, step: Step, now: u64) {
        match step {
            Step::Expect(number) | Step::See(number) if self.is_over(number) => {}
            Step::Expect(number) => {
                self.waiting.entry(number).or_default();
            }
            Step::See(number) => {
                let seen = self.waiting.entry(number).or_default();
                *seen = Some((seen.map_or(now, |(first, _)| first), now));
            }
            Step::Enter(number) => {
                if self.last.is_none_or(|(last, _)| last <= number) {
                    self.last = Some((number, false));
                    self.waiting.retain(|waits, _| *waits > number);
                }
            }
            Step::Done(number) => {
                if let Some((_, done)) = self.last.as_mut().filter(|(last, _)| *last == number) {
                    *done = true;
                }
            }
        }
    }

    fn before(&self, number: u64) -> Precedence {
        if self.is_over(number) {
            return Precedence::Nothing;
        }
        let below: Vec<_> = self.waiting.range(..number).map(|(_, seen)| *seen).collect();
        match self.last {
            _ if !below.is_empty() => {
                Precedence::Expected(below.into_iter().flatten().map(|(_, last)| Micros(last)).max())
            }
            Some((last, false)) => Precedence::LastAdmitted(key(last)),
            _ => Precedence::Nothing,
        }
    }
}

fn take(line: &mut OrderTable, step: Step, now: u64) {
    match step {
        Step::Expect(number) => drop(line.expect(number).unwrap()),
        Step::See(number) => line.note_delivery(number, Micros(now), false).unwrap(),
        Step::Enter(number) => line.admit(number, &key(number), Micros(now)),
        Step::Done(number) => drop(line.note_done(number, &key(number))),
    }
}

fn compare(line: &OrderTable, plain: &Plain, steps: &[Step]) {
    assert_eq!(line.last.as_ref().map(|last| (last.number, last.done)), plain.last, "{steps:?}");
    for number in 0..5 {
        assert_eq!(line.before(number), plain.before(number), "{number} after {steps:?}");
        let seen = plain.waiting.get(&number).copied().flatten();
        assert_eq!(line.seen(number).map(|seen| (seen.first.0, seen.last.0)), seen, "{number} after {steps:?}");
    }
    let ordered = line.waiting.windows(2).all(|two| two[0].to < two[1].from);
    assert!(ordered && line.waiting.iter().all(|stretch| stretch.from <= stretch.to), "{line:?} after {steps:?}");
}

#[test]
fn s0_27_every_short_history_leaves_what_it_should() {
    let all: Vec<_> = (0..4).flat_map(|n| [Step::Expect(n), Step::See(n), Step::Enter(n), Step::Done(n)]).collect();
    let mut histories = 0;
    let mut open = vec![(OrderTable::default(), Plain::default(), Vec::new())];
    while let Some((line, plain, steps)) = open.pop() {
        compare(&line, &plain, &steps);
        histories += 1;
        if steps.len() == 4 {
            continue;
        }
        for step in &all {
            let (mut line, mut plain, mut steps) = (line.clone(), plain.clone(), steps.clone());
            steps.push(*step);
            take(&mut line, *step, steps.len() as u64);
            plain.step(*step, steps.len() as u64);
            open.push((line, plain, steps));
        }
    }
    assert_eq!(histories, 1 + 16 + 256 + 4_096 + 65_536);
}

#[test]
fn numbers_side_by_side_are_one_stretch_up_to_the_largest_there_are() {
    let mut line = OrderTable::default();
    for number in (1..=1_000_000).chain([u64::MAX - 1, 0, u64::MAX]) {
        assert_eq!(line.expect(number), Ok(true));
    }
    let stretch = |from, to| NumberRange { from, to, seen: None };
    assert_eq!(line.waiting, [stretch(0, 1_000_000), stretch(u64::MAX - 1, u64::MAX)]);
    line.note_delivery(u64::MAX, Micros(1), false).unwrap();
    line.admit(u64::MAX, &key(1), Micros(0));
    assert_eq!(line.waiting, []);
    assert!(line.is_late(0, &key(2)));
}

#[test]
fn a_full_line_takes_no_more_and_what_is_there_stays() {
    let mut line = OrderTable::default();
    for number in 0..MAX_LINE as u64 {
        line.expect(2 * number + 1).unwrap();
    }
    let full = line.clone();
    assert_eq!(line.expect(1_000_000), Err(TableFull));
    assert_eq!(line.note_delivery(0, Micros(1), false), Err(TableFull));
    assert_eq!(line, full);
    assert_eq!(
        (line.expect(3), line.note_delivery(3, Micros(1), false)),
        (Ok(true), Ok(())),
        "what is known takes no room"
    );
    assert_eq!(line.expect(2), Ok(true), "nor does what joins a stretch");
}

#[test]
fn s0_26_whoever_is_inside_may_run_until_its_record_or_its_time_says_otherwise() {
    let inside = Admitted { key: key(1), until: Micros(10) };
    let running = |until| State::Consuming { owner: crate::OwnerToken(1), until: Micros(until), taken_over: None };
    let consumed = State::Consumed { owner: crate::OwnerToken(1), value: None };
    let vacant = State::Vacant { not_before: Micros(0), error: "".into(), taken_over: None };
    let dead = State::Dead { error: "".into() };
    // About to claim.
    assert!(inside.may_run(None, Micros(9)) && !inside.may_run(None, Micros(10)));
    assert!(inside.may_run(Some(&vacant), Micros(9)) && !inside.may_run(Some(&vacant), Micros(10)));
    // It runs, and renews.
    assert!(inside.may_run(Some(&running(20)), Micros(19)) && !inside.may_run(Some(&running(20)), Micros(20)));
    // A run of before whose lease is over, and the next one about to claim.
    assert!(inside.may_run(Some(&running(5)), Micros(9)));
    assert!(!inside.may_run(Some(&consumed), Micros(0)) && !inside.may_run(Some(&dead), Micros(0)));
}

#[test]
fn each_letting_in_makes_another_line_also_of_the_same_number() {
    let mut line = OrderTable::default();
    line.admit(1, &key(1), Micros(5));
    let once = line.clone();
    line.admit(1, &key(1), Micros(5));
    assert_ne!(line, once);
    assert!(line.note_done(1, &key(1)) && !line.note_done(1, &key(1)));
    // The same number under another key is no other first.
    assert!(line.is_late(1, &key(2)) && !line.is_late(1, &key(1)));
}

#[test]
fn a_number_that_is_seen_anew_waits_from_then_on() {
    let mut line = OrderTable::default();
    for (now, anew, first) in [(1, false, 1), (5, false, 1), (9, true, 9), (12, false, 9)] {
        line.note_delivery(3, Micros(now), anew).unwrap();
        assert_eq!(line.seen(3), Some(WaitTimes { first: Micros(first), last: Micros(now) }));
    }
}

#[test]
fn a_number_is_done_by_its_own_key_only() {
    let mut line = OrderTable::default();
    line.admit(5, &key(5), Micros(100));
    assert!(!line.note_done(5, &key(6)), "another key with this number");
    line.note_done(6, &key(5));
    assert!(!line.last.as_ref().unwrap().done, "another number under this key");
    line.note_done(5, &key(5));
    assert!(line.last.as_ref().unwrap().done);
}

#[test]
fn a_table_is_kept_as_long_as_its_calls_and_twice_as_long_as_one_waits() {
    let keep = |retain, memory, patience| retention(secs(retain), secs(memory), secs(patience));
    assert_eq!([keep(9, 5, 1), keep(5, 9, 1), keep(5, 5, 9)], [secs(9), secs(9), secs(18)]);
    assert_eq!(keep(1, 1, u64::MAX), Duration::MAX);
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

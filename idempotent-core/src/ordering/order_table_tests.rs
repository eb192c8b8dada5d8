//! Compares each table operation with a plain model, over every short history.
#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;

use super::*;
use crate::State;

fn key(number: u64) -> Key {
    Key::from_parts("points", number.into())
}

/// A model of the table that keeps each number separately.
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
    fn is_passed(&self, number: u64) -> bool {
        self.last.is_some_and(|(last, _)| last >= number)
    }

    fn step(&mut self, step: Step, now: u64) {
        match step {
            Step::Expect(number) | Step::See(number) if self.is_passed(number) => {}
            Step::Expect(number) => {
                self.waiting.entry(number).or_default();
            }
            Step::See(number) => {
                let wait_times = self.waiting.entry(number).or_default();
                *wait_times = Some((wait_times.map_or(now, |(first, _)| first), now));
            }
            Step::Enter(number) => {
                if self.last.is_none_or(|(last, _)| last <= number) {
                    self.last = Some((number, false));
                    self.waiting.retain(|waits, _| *waits > number);
                }
            }
            Step::Done(number) => {
                if let Some((_, is_consumed)) = self.last.as_mut().filter(|(last, _)| *last == number) {
                    *is_consumed = true;
                }
            }
        }
    }

    fn precedence(&self, number: u64) -> Precedence {
        if self.is_passed(number) {
            return Precedence::Nothing;
        }
        let below: Vec<_> = self.waiting.range(..number).map(|(_, wait_times)| *wait_times).collect();
        match self.last {
            _ if !below.is_empty() => {
                Precedence::Expected(below.into_iter().flatten().map(|(_, last)| Timestamp(last)).max())
            }
            Some((last, false)) => Precedence::LastAdmitted(key(last)),
            _ => Precedence::Nothing,
        }
    }
}

fn take(table: &mut OrderTable, step: Step, now: u64) {
    match step {
        Step::Expect(number) => drop(table.expect_number(number).unwrap()),
        Step::See(number) => table.record_wait(number, Timestamp(now), false).unwrap(),
        Step::Enter(number) => table.admit(number, &key(number), Timestamp(now)),
        Step::Done(number) => drop(table.mark_consumed(number, &key(number))),
    }
}

fn compare(table: &OrderTable, plain: &Plain, steps: &[Step]) {
    assert_eq!(table.last.as_ref().map(|last| (last.number, last.is_consumed)), plain.last, "{steps:?}");
    for number in 0..5 {
        assert_eq!(table.precedence(number), plain.precedence(number), "{number} after {steps:?}");
        let wait_times = plain.waiting.get(&number).copied().flatten();
        assert_eq!(
            table.wait_times(number).map(|wait_times| (wait_times.first.0, wait_times.last.0)),
            wait_times,
            "{number} after {steps:?}"
        );
    }
    let ordered = table.waiting.windows(2).all(|two| two[0].to < two[1].from);
    assert!(ordered && table.waiting.iter().all(|range| range.from <= range.to), "{table:?} after {steps:?}");
}

#[test]
fn every_short_history_matches_the_model() {
    let all: Vec<_> = (0..4).flat_map(|n| [Step::Expect(n), Step::See(n), Step::Enter(n), Step::Done(n)]).collect();
    let mut histories = 0;
    let mut open = vec![(OrderTable::default(), Plain::default(), Vec::new())];
    while let Some((table, plain, steps)) = open.pop() {
        compare(&table, &plain, &steps);
        histories += 1;
        if steps.len() == 4 {
            continue;
        }
        for step in &all {
            let (mut table, mut plain, mut steps) = (table.clone(), plain.clone(), steps.clone());
            steps.push(*step);
            take(&mut table, *step, steps.len() as u64);
            plain.step(*step, steps.len() as u64);
            open.push((table, plain, steps));
        }
    }
    assert_eq!(histories, 1 + 16 + 256 + 4_096 + 65_536);
}

#[test]
fn consecutive_numbers_share_one_range_up_to_the_largest_u64() {
    let mut table = OrderTable::default();
    for number in (1..=1_000_000).chain([u64::MAX - 1, 0, u64::MAX]) {
        assert_eq!(table.expect_number(number), Ok(true));
    }
    let range = |from, to| NumberRange { from, to, wait_times: None };
    assert_eq!(table.waiting, [range(0, 1_000_000), range(u64::MAX - 1, u64::MAX)]);
    table.record_wait(u64::MAX, Timestamp(1), false).unwrap();
    table.admit(u64::MAX, &key(1), Timestamp(0));
    assert_eq!(table.waiting, []);
    assert!(table.is_late(0, &key(2)));
}

#[test]
fn a_full_table_rejects_new_ranges_and_stays_unchanged() {
    let mut table = OrderTable::default();
    for number in 0..MAX_WAITING_RANGES as u64 {
        table.expect_number(2 * number + 1).unwrap();
    }
    let full = table.clone();
    assert_eq!(table.expect_number(1_000_000), Err(TableFull));
    assert_eq!(table.record_wait(0, Timestamp(1), false), Err(TableFull));
    assert_eq!(table, full);
    assert_eq!(
        (table.expect_number(3), table.record_wait(3, Timestamp(1), false)),
        (Ok(true), Ok(())),
        "known numbers take no room"
    );
    assert_eq!(table.expect_number(2), Ok(true), "a number that extends a range takes no room");
}

#[test]
fn an_admitted_call_may_run_until_its_record_or_its_time_ends_that() {
    let admitted = Admitted { key: key(1), until: Timestamp(10) };
    let running = |until| State::Consuming { owner: crate::OwnerToken(1), until: Timestamp(until), taken_over: None };
    let consumed = State::Consumed { owner: crate::OwnerToken(1), value: None };
    let vacant = State::Vacant { not_before: Timestamp(0), error: "".into(), taken_over: None };
    let dead = State::Dead { error: "".into() };
    // The call is about to claim.
    assert!(admitted.may_run(None, Timestamp(9)) && !admitted.may_run(None, Timestamp(10)));
    assert!(admitted.may_run(Some(&vacant), Timestamp(9)) && !admitted.may_run(Some(&vacant), Timestamp(10)));
    // The call runs, and its lease is renewed.
    assert!(
        admitted.may_run(Some(&running(20)), Timestamp(19)) && !admitted.may_run(Some(&running(20)), Timestamp(20))
    );
    // The lease of an earlier run has expired, and the next run is about to claim.
    assert!(admitted.may_run(Some(&running(5)), Timestamp(9)));
    assert!(!admitted.may_run(Some(&consumed), Timestamp(0)) && !admitted.may_run(Some(&dead), Timestamp(0)));
}

#[test]
fn each_admission_changes_the_table_even_of_the_same_number() {
    let mut table = OrderTable::default();
    table.admit(1, &key(1), Timestamp(5));
    let once = table.clone();
    table.admit(1, &key(1), Timestamp(5));
    assert_ne!(table, once);
    assert!(table.mark_consumed(1, &key(1)) && !table.mark_consumed(1, &key(1)));
    // The same number under another key is late.
    assert!(table.is_late(1, &key(2)) && !table.is_late(1, &key(1)));
}

#[test]
fn a_restarted_wait_counts_from_the_restart() {
    let mut table = OrderTable::default();
    for (now, restart, first) in [(1, false, 1), (5, false, 1), (9, true, 9), (12, false, 9)] {
        table.record_wait(3, Timestamp(now), restart).unwrap();
        assert_eq!(table.wait_times(3), Some(WaitTimes { first: Timestamp(first), last: Timestamp(now) }));
    }
}

#[test]
fn only_its_own_key_marks_a_number_as_consumed() {
    let mut table = OrderTable::default();
    table.admit(5, &key(5), Timestamp(100));
    assert!(!table.mark_consumed(5, &key(6)), "another key with this number");
    table.mark_consumed(6, &key(5));
    assert!(!table.last.as_ref().unwrap().is_consumed, "another number under this key");
    table.mark_consumed(5, &key(5));
    assert!(table.last.as_ref().unwrap().is_consumed);
}

#[test]
fn a_table_is_kept_as_long_as_its_records_and_twice_the_patience() {
    let kept_for = |retain, failures, patience| table_retention(secs(retain), secs(failures), secs(patience));
    assert_eq!([kept_for(9, 5, 1), kept_for(5, 9, 1), kept_for(5, 5, 9)], [secs(9), secs(9), secs(18)]);
    assert_eq!(kept_for(1, 1, u64::MAX), Duration::MAX);
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

//! The order of effects, held against that of the chains.
use std::collections::{BTreeMap, BTreeSet};

use super::{Link, Note};
use crate::delivery::effects;
use crate::delivery::phases::{Deaths, Stage};
use crate::delivery::process::Point;
use crate::verdict::Verdict;

/// A link whose predecessor is dead, or was not seen for this long, runs; as `skip` of the handlers says. In µs, less what
/// a store's clock that knows no µs may be off.
const PATIENCE: u64 = 5_000_000 - 5_000;

/// The final state.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    /// Effects and records are one transaction: each has its effect once.
    pub(super) in_transaction: bool,
    /// In their order.
    pub(super) effects: Vec<(String, u64)>,
    pub(super) dead: Vec<Link>,
}

/// The required events of a run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) links: u64,
    streams: u64,
    /// Pairs of a chain, and of a stream.
    in_order: [u64; 2],
    skipped: [u64; 2],
    /// Deliveries of links whose turn had not come.
    put_off: u64,
    excused: u64,
    dead: u64,
    died: Deaths,
}

#[derive(Default)]
struct Book {
    intended: BTreeSet<Link>,
    kept: BTreeSet<Link>,
    /// The times of deliveries and of handler starts, by name.
    came: BTreeMap<String, Vec<u64>>,
    runs: BTreeMap<String, Vec<u64>>,
    /// The start and end of each deferred delivery.
    put_off: BTreeMap<String, Vec<(u64, u64)>>,
    tally: Tally,
}

pub(super) fn judge(seen: &[(u32, Note)], left: &Left) -> (Tally, Vec<String>) {
    let mut book = Book::default();
    for (_, note) in seen {
        book.enter(note);
    }
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, (name, _)) in left.effects.iter().enumerate() {
        first.entry(name).or_insert(place);
    }
    let mut found = book.effects(left, &first);
    found.extend(book.order(&first));
    found.extend(book.letters(left));
    book.tally.links = book.kept.len() as u64;
    book.tally.dead = left.dead.len() as u64;
    let came: usize = book.came.values().map(Vec::len).sum();
    let ran: usize = book.runs.values().map(Vec::len).sum();
    book.tally.put_off = came.saturating_sub(ran) as u64;
    (book.tally, found)
}

impl Book {
    fn enter(&mut self, note: &Note) {
        match note {
            Note::Registered { .. } => self.tally.streams += 1,
            Note::Intends(link) => drop(self.intended.insert(*link)),
            Note::Kept(link) => drop(self.kept.insert(*link)),
            Note::Came { link, at } => self.came.entry(link.name()).or_default().push(*at),
            Note::Deferred { link, came, at } => self.put_off.entry(link.name()).or_default().push((*came, *at)),
            Note::Runs { link, at } => self.runs.entry(link.name()).or_default().push(*at),
            Note::Dies(point) => self.tally.died.add(*point),
        }
    }

    fn effects(&self, left: &Left, first: &BTreeMap<&str, usize>) -> Vec<String> {
        let lost = self.kept.iter().filter(|link| !link.poison && !first.contains_key(link.name().as_str()));
        let mut found: Vec<_> =
            lost.map(|link| format!("R1: {} was accepted, and has no effect", link.name())).collect();
        let may: BTreeSet<String> = self.intended.iter().filter(|link| !link.poison).map(|link| link.name()).collect();
        for (name, count) in effects::counts(&left.effects) {
            if !may.contains(name) {
                found.push(format!("R3: {name} took effect, and is not to"));
            } else if left.in_transaction && count > 1 {
                found.push(format!("R3: {name} took effect {count} times"));
            }
        }
        found
    }

    /// Each link with the nearest before it that can have an effect.
    fn order(&mut self, first: &BTreeMap<&str, usize>) -> Vec<String> {
        let mut found = Vec::new();
        let mut held_up = false;
        let mut went_on = false;
        let links: Vec<_> = self.intended.iter().copied().collect();
        for pair in links.windows(2).filter(|pair| pair[0].chain == pair[1].chain) {
            let [one, next] = [pair[0], pair[1]];
            let Some(second) = first.get(next.name().as_str()) else { continue };
            let kind = usize::from(next.numbered);
            if one.poison && (next.numbered || one.number + 1 == next.number) {
                self.tally.skipped[kind] += 1;
                // A number after a larger admitted one waits for no predecessor, and is checked by itself.
                let is_late = next.numbered
                    && links
                        .iter()
                        .filter(|link| link.chain == next.chain && link.number > next.number)
                        .any(|larger| first.get(larger.name().as_str()).is_some_and(|place| place < second));
                if !is_late && self.patient(&next).is_none() {
                    found.push(format!("R2: {} did without {} before its time", next.name(), one.name()));
                }
                // Effects of other chains between those of the links before and after the broken one.
                let start = links.iter().find(|link| link.chain == one.chain && link.number + 1 == one.number);
                if let Some(start) = start.and_then(|link| first.get(link.name().as_str())) {
                    held_up = true;
                    went_on |= second.saturating_sub(*start) > 1;
                }
                continue;
            }
            // The one that it names was never sent. Of those before that only a stream knows.
            if !next.numbered && one.number + 1 != next.number {
                if self.patient(&next).is_none() {
                    found.push(format!("R2: {} did without what was never sent before its time", next.name()));
                }
                continue;
            }
            match first.get(one.name().as_str()) {
                Some(earlier) if earlier < second => self.tally.in_order[kind] += 1,
                // Lost, and found as that; or never sent, and skipped.
                None => {}
                Some(_) if self.is_excused(&one, &next) => self.tally.excused += 1,
                Some(_) => found.push(format!("R2: {} took effect before {}", next.name(), one.name())),
            }
        }
        if held_up && !went_on {
            found.push("R5: while a chain was held up no other one went on".to_owned());
        }
        found
    }

    /// Returns the start of a link's run that waited for the whole patience without its predecessor.
    fn patient(&self, link: &Link) -> Option<u64> {
        let ran = *self.runs.get(&link.name())?.iter().min()?;
        let came = *self.came.get(&link.name())?.iter().min()?;
        (came + PATIENCE <= ran).then_some(ran)
    }

    /// Returns whether `one` had been deferred for a shorter time than `next` had to wait, when the delivery of its
    /// run began. This is the rule of `skip`. The store does not know a delivery that died before its first call.
    fn is_excused(&self, one: &Link, next: &Link) -> bool {
        let Some(ran) = self.patient(next) else { return false };
        let came = self.came.get(&next.name()).into_iter().flatten().filter(|at| **at <= ran).max();
        let put_off = self.put_off.get(&one.name()).into_iter().flatten();
        !put_off.into_iter().any(|(from, to)| Some(to) <= came && from + PATIENCE > ran)
    }

    fn letters(&self, left: &Left) -> Vec<String> {
        let dead: BTreeSet<_> = left.dead.iter().copied().collect();
        let wrong = dead.iter().filter(|link| !link.poison || !self.intended.contains(link));
        let mut found: Vec<_> = wrong.map(|link| format!("R4: {} is dead, and is not to be", link.name())).collect();
        let missing = self.kept.iter().filter(|link| link.poison && !dead.contains(link));
        found
            .extend(missing.map(|link| format!("R4: {} always fails, and is not among the dead letters", link.name())));
        found
    }
}

impl Tally {
    /// Adds the seen events and the required events of a run of this length.
    pub(super) fn tell(&self, verdict: &mut Verdict, seconds: u64, stage: &Stage) {
        let some = (seconds / 5).max(1);
        let long = u64::from(seconds >= 20);
        stage.tell(verdict, some * 3, some, ("crashes of Redis", u64::from(seconds >= 5)));
        verdict.tell("links", self.links, some * 20);
        verdict.tell("streams registered", self.streams, some);
        let [chains, streams] = self.in_order;
        verdict.tell("pairs in order", chains, some * 5);
        verdict.tell("numbers in order", streams, some * 5);
        let [links, numbers] = self.skipped;
        verdict.tell("links whose predecessor was dead", links, u64::from(seconds >= 20));
        verdict.tell("numbers whose predecessor was dead", numbers, u64::from(seconds >= 20));
        verdict.tell("predecessors that were dead", links + numbers, u64::from(seconds >= 5));
        verdict.tell("put off", self.put_off, some * 10);
        verdict.tell("predecessors nobody had seen", self.excused, 0);
        verdict.tell("dead letters", self.dead, u64::from(seconds >= 5));
        let points = [
            (Point::BeforeSend, "deaths before a send"),
            (Point::AfterSend, "deaths in a send"),
            (Point::BeforeEffect, "deaths before an effect"),
            (Point::BeforeSettling, "deaths before settling"),
        ];
        self.died.tell(verdict, &points, long);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(chain: u64, number: u64) -> Link {
        Link { chain, number, numbered: false, poison: (chain, number) == (1, 2) }
    }

    fn sent() -> Vec<(u32, Note)> {
        let links = [link(1, 1), link(1, 2), link(1, 3), link(1, 4), link(2, 1)];
        links.iter().flat_map(|link| [(1, Note::Intends(*link)), (1, Note::Kept(*link))]).collect()
    }

    fn left(names: &[&str]) -> Left {
        let effects = names.iter().map(|name| ((*name).to_owned(), 0)).collect();
        Left { in_transaction: true, effects, dead: vec![link(1, 2)] }
    }

    /// Returns the notes of a successor that waited for the whole patience.
    fn waited() -> [(u32, Note); 2] {
        [(2, Note::Came { link: link(1, 3), at: 1 }), (2, Note::Runs { link: link(1, 3), at: 1 + PATIENCE })]
    }

    fn found(more: &[(u32, Note)], left: &Left) -> Vec<String> {
        judge(&[&sent(), &waited()[..], more].concat(), left).1.into_iter().map(|found| found[..2].to_owned()).collect()
    }

    #[test]
    fn chains_in_their_order_with_one_link_skipped_are_well() {
        assert_eq!(found(&[], &left(&["1/1", "2/1", "1/3", "1/4"])), Vec::<String>::new());
    }

    #[test]
    fn each_violation_is_found_separately() {
        for (names, finding) in [
            (&["1/1", "2/1", "1/3"][..], "R1"),
            (&["1/1", "2/1", "1/4", "1/3"], "R2"),
            (&["1/1", "2/1", "1/3", "1/4", "1/1"], "R3"),
            (&["1/1", "2/1", "1/2", "1/3", "1/4"], "R3"),
            (&["1/1", "1/3", "1/4", "2/1"], "R5"),
        ] {
            assert_eq!(found(&[], &left(names)), [finding], "{names:?}");
        }
        let well = left(&["1/1", "2/1", "1/3", "1/4"]);
        assert_eq!(found(&[], &Left { dead: Vec::new(), ..well.clone() }), ["R4"]);
        assert_eq!(found(&[], &Left { dead: vec![link(1, 2), link(2, 1)], ..well.clone() }), ["R4"]);
        let twice = Left { in_transaction: false, ..left(&["1/1", "2/1", "1/3", "1/4", "1/1"]) };
        assert_eq!(found(&[], &twice), Vec::<String>::new());
    }

    #[test]
    fn an_unseen_link_may_be_skipped_and_a_waiting_one_may_not() {
        let wrong = left(&["1/1", "2/1", "1/4", "1/3"]);
        let came = |at| (2, Note::Came { link: link(1, 4), at });
        let waits = |from, to| [came(from), came(to), (2, Note::Runs { link: link(1, 4), at: to })];
        let late = 3 * PATIENCE;
        assert_eq!(found(&waits(late, late + PATIENCE), &wrong), Vec::<String>::new());
        assert_eq!(found(&waits(late, late + PATIENCE - 1), &wrong), ["R2"]);
        for (from, to, told) in [
            (late + 1, late + 2, &["R2"][..]),
            (late, late + 2, &[]),
            // When the fourth had looked already.
            (late + 1, late + PATIENCE + 1, &[]),
        ] {
            let third = [(2, Note::Deferred { link: link(1, 3), came: from, at: to })];
            assert_eq!(found(&[&waits(late, late + PATIENCE)[..], &third].concat(), &wrong), told, "{from} {to}");
        }
        // It came, and died before anybody could know.
        let came = [(2, Note::Came { link: link(1, 3), at: late + 1 })];
        assert_eq!(found(&[&waits(late, late + PATIENCE)[..], &came].concat(), &wrong), Vec::<String>::new());
    }

    #[test]
    fn a_link_that_names_one_which_was_never_sent_waits_for_that_and_a_number_for_all() {
        for (numbered, ran, found) in
            [(false, PATIENCE, None), (false, PATIENCE - 1, Some("R2")), (true, PATIENCE, Some("R2"))]
        {
            let of = |number| Link { chain: 3, number, numbered, poison: false };
            let sent = [of(1), of(2), of(4)].map(|link| (1, Note::Intends(link)));
            let came = |number, at| (2, Note::Came { link: of(number), at });
            let put_off = (2, Note::Deferred { link: of(2), came: 5, at: 6 });
            let came = [came(4, 0), came(2, 5), put_off, came(4, ran), (2, Note::Runs { link: of(4), at: ran })];
            let effects =
                [(3, 1), (3, 4), (3, 2)].map(|(chain, number)| (format!("{chain}/{number}"), number)).to_vec();
            let left = Left { in_transaction: true, effects, dead: Vec::new() };
            let told = judge(&[&sent[..], &came].concat(), &left).1;
            assert_eq!(told.first().map(|told| &told[..2]), found, "{told:?}");
        }
    }

    #[test]
    fn a_late_number_delays_no_link_and_a_link_that_does_not_wait_is_found() {
        for (numbered, found) in [(true, &[][..]), (false, &["R2"])] {
            let of = |number| Link { chain: 3, number, numbered, poison: number == 1 };
            let all = [of(1), of(2), of(3)].map(|link| (1, Note::Intends(link)));
            let came = |number, at| (2, Note::Came { link: of(number), at });
            let runs = |number, at| (2, Note::Runs { link: of(number), at });
            // The third has waited for the second in vain, which then comes, and runs at once.
            let late = [came(3, 0), runs(3, PATIENCE), came(2, PATIENCE + 1), runs(2, PATIENCE + 2)];
            let effects = [("3/3".to_owned(), 3), ("3/2".to_owned(), 2)].to_vec();
            let left = Left { in_transaction: true, effects, dead: vec![of(1)] };
            let told: Vec<_> = judge(&[&all[..], &late].concat(), &left).1;
            assert_eq!(told.iter().map(|told| &told[..2]).collect::<Vec<_>>(), found, "{told:?}");
        }
    }

    #[test]
    fn one_that_does_without_its_predecessor_too_early_is_found() {
        let early = [(2, Note::Runs { link: link(1, 3), at: PATIENCE })];
        assert_eq!(found(&early, &left(&["1/1", "2/1", "1/3", "1/4"])), ["R2"]);
    }
}

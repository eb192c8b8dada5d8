//! The comparison of the final queues with the published messages and the result of each key.
use std::collections::{BTreeMap, BTreeSet};

use idempotent_testkit::history::{History, Kind};

use super::broker::Letter;
use super::publisher::Ledger;
use crate::verdict::Verdict;
use crate::worker::RUNS;

/// The result of a key in the history of the workers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    consumed: bool,
    /// Failed for good, or out of attempts.
    buried: bool,
    /// True if the worker may have dead-lettered the message: the answer of the first attempt was lost, and the next
    /// one reported a dead letter.
    unheard: bool,
    /// Claims that may have been granted.
    runs: u32,
    failed: bool,
}

pub(super) fn fates(history: &History) -> BTreeMap<&str, Fate> {
    let mut fates: BTreeMap<&str, Fate> = BTreeMap::new();
    for line in &history.lines {
        let Some(key) = &line.key else { continue };
        let fate = fates.entry(key).or_default();
        match line.event {
            Kind::CompleteOk | Kind::ClaimConsumed => fate.consumed = true,
            Kind::Dead => fate.buried = true,
            Kind::Failed | Kind::ClaimFailed => (fate.buried, fate.failed) = (true, true),
            Kind::ReleaseUnknown => fate.unheard = true,
            Kind::ClaimWon | Kind::ClaimUnknown => fate.runs += 1,
            _ => {}
        }
    }
    fates
}

/// The letter that a copy has to be, and the storage key of its number.
pub(super) struct Expected<'a> {
    pub(super) letter: &'a dyn Fn(&super::copy::Copy) -> Letter,
    pub(super) key: &'a dyn Fn(u64) -> String,
}

/// Each dead letter is what was published, and belongs there; and each that belongs there is there.
pub(super) fn letters(
    ledger: &Ledger,
    letters: &[Letter],
    fates: &BTreeMap<&str, Fate>,
    expected: &Expected<'_>,
) -> Vec<String> {
    let mut found = Vec::new();
    let fate = |number: u64| fates.get((expected.key)(number).as_str()).copied().unwrap_or_default();
    let mut there = BTreeSet::new();
    for letter in letters {
        let sent = letter.copy.as_ref().and_then(|name| ledger.copies.get(name));
        let Some((copy, _)) = sent else {
            found.push(format!("D1: a dead letter that nobody sent: {}", letter.content));
            continue;
        };
        let whole = (expected.letter)(copy);
        if *letter != whole {
            found.push(format!("D1: the dead letter {} is {}, and was {}", copy.name, letter.content, whole.content));
        }
        if copy.key.map(&fate).is_some_and(|fate| !fate.buried && !fate.unheard) {
            found.push(format!("D2: {} is a dead letter, and its key is neither failed nor dead", copy.name));
        }
        there.insert(copy.name.as_str());
    }
    for (name, (copy, confirmed)) in &ledger.copies {
        let belongs = copy.key.is_none_or(|number| fate(number).buried && !fate(number).consumed);
        if *confirmed && belongs && !there.contains(name.as_str()) {
            found.push(format!("D3: {name} had to become a dead letter, and is nowhere"));
        }
    }
    found
}

/// Returns a line if the consumer made copies of deferred messages, which the broker delays.
pub(super) fn copies(kind: super::broker::Kind, deferred: u64) -> Option<String> {
    (kind.delays_deferred() && deferred > 0).then(|| format!("D9: {deferred} copies of deferred messages"))
}

/// A key is buried for a reason: its handler says so, or it has had all its runs.
pub(super) fn burials(fates: &BTreeMap<&str, Fate>, fails_for_good: impl Fn(&str) -> bool) -> Vec<String> {
    let early = fates.iter().filter(|(key, fate)| {
        let said = fate.failed && fails_for_good(key);
        fate.buried && !said && (fate.failed || fate.runs < RUNS)
    });
    early.map(|(key, fate)| format!("D4: {key} was given up after {} of {RUNS} runs", fate.runs)).collect()
}

/// Adds the required events of a run to the verdict.
pub(super) fn tell(
    verdict: &mut Verdict,
    history: &History,
    (letters, forged): (u64, Option<u64>),
    resent: u64,
    seconds: u64,
) {
    let count = |event| history.lines.iter().filter(|line| line.event == event).count() as u64;
    let some = (seconds / 5).max(1);
    verdict.tell("published keys", count(Kind::Produced), some);
    verdict.tell("acknowledged", count(Kind::Ack), some);
    verdict.tell("put off", count(Kind::Nack), some);
    verdict.tell("duplicates of what was done", count(Kind::ClaimConsumed), some);
    verdict.tell("duplicates in flight", count(Kind::ClaimInflight), some);
    verdict.tell("dead letters", letters, some);
    if let Some(forged) = forged {
        verdict.tell("forged messages", forged, 1);
    }
    verdict.tell("published again", resent, u64::from(seconds >= 5));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::super::copy::Copy;
    use super::*;

    fn copy(name: &str, key: Option<u64>) -> Copy {
        Copy { name: name.to_owned(), id: "i".to_owned(), key, body: b"b".to_vec(), trace: vec![255], forged: false }
    }

    fn letter(copy: &Copy) -> Letter {
        Letter { copy: Some(copy.name.clone()), content: format!("{:?}", copy.body) }
    }

    /// Judges dead letters where key 1 is dead, key 2 is consumed, and the result of key 3 is unknown.
    fn judged(lie: &[Letter]) -> Vec<String> {
        let copies = [copy("1.0", Some(1)), copy("2.0", Some(2)), copy("3.0", Some(3)), copy("garbage", None)];
        let copies = copies.map(|copy| (copy.name.clone(), (Arc::new(copy), true)));
        let ledger = Ledger { copies: copies.into(), resent: 0 };
        let dead = Fate { buried: true, runs: RUNS, ..Fate::default() };
        let unheard = Fate { unheard: true, ..Fate::default() };
        let fates = BTreeMap::from([("k1", dead), ("k2", Fate { consumed: true, ..Fate::default() }), ("k3", unheard)]);
        let expected = Expected { letter: &letter, key: &|number| format!("k{number}") };
        letters(&ledger, lie, &fates, &expected).into_iter().map(|found| found[..2].to_owned()).collect()
    }

    #[test]
    fn a_copy_of_a_deferred_message_is_found_where_the_broker_delays_it() {
        use super::super::broker::Kind;
        assert_eq!((copies(Kind::Rabbitmq, 2), copies(Kind::RabbitmqDelayedRetry, 0)), (None, None));
        assert!(copies(Kind::RabbitmqDelayedRetry, 2).unwrap().starts_with("D9: 2 copies"));
    }

    #[test]
    fn a_missing_altered_or_misplaced_dead_letter_is_found() {
        let [dead, garbage] = [letter(&copy("1.0", Some(1))), letter(&copy("garbage", None))];
        let altered = Letter { content: "other".to_owned(), ..dead.clone() };
        let unknown = Letter { copy: None, ..dead.clone() };
        let alive = letter(&copy("2.0", Some(2)));
        assert_eq!(judged(&[dead.clone(), garbage.clone(), dead.clone()]), Vec::<String>::new());
        assert_eq!(judged(std::slice::from_ref(&dead)), ["D3"]);
        assert_eq!(judged(&[altered, garbage.clone()]), ["D1"]);
        assert_eq!(judged(&[unknown, garbage.clone()]), ["D1", "D3"]);
        assert_eq!(judged(&[dead.clone(), garbage.clone(), alive]), ["D2"]);
        assert_eq!(judged(&[dead, garbage, letter(&copy("3.0", Some(3)))]), Vec::<String>::new());
    }

    #[test]
    fn a_key_that_was_given_up_early_is_found() {
        let fate = |runs, failed| Fate { buried: true, runs, failed, ..Fate::default() };
        let early = |fate, for_good| burials(&BTreeMap::from([("k", fate)]), |_| for_good).len();
        assert_eq!((early(fate(RUNS, false), false), early(fate(RUNS - 1, false), false)), (0, 1));
        assert_eq!((early(fate(1, true), true), early(fate(RUNS, true), false)), (0, 1));
    }
}

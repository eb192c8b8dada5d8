//! Races: a swap is one atomic step.
use std::cell::Cell;
use std::collections::HashMap;
use std::pin::Pin;

use idempotent_core::Record;

use crate::conformance::CasSubject;
use crate::conformance::cas::held;
use crate::conformance::together::{in_turns, race};

const RACERS: u32 = 64;

/// The number of tries of one writer among four. Each swap of another writer refuses it at most once.
const PATIENCE: u32 = 10_000;

/// Runs writers that write a record of their own, and others that delete. All have read the same version.
async fn one_wins(s: &CasSubject, round: u32, deletes: impl Fn(u32) -> bool) {
    let k = s.hand(&format!("round {round}"));
    // Without a record, over the first record, and over a record after a deletion.
    if deletes(1) || !round.is_multiple_of(3) {
        k.put(&k.sample(100).await).await;
    }
    if round % 3 == 2 {
        k.delete().await;
        k.put(&k.sample(101).await).await;
    }
    let seen = k.read().await;
    let nexts: Vec<_> = (0..RACERS).map(|n| (!deletes(n)).then(|| held(seen.now, n))).collect();
    let racing = nexts.iter().cloned().map(|next: Option<Record>| {
        let k = k.clone();
        async move { k.swap(seen.version, next.as_ref()).await }
    });
    let done = race(round, racing.collect()).await;
    let won: Vec<_> = (0..done.len()).filter(|&n| done[n]).collect();
    assert_eq!(won.len(), 1, "{} of {RACERS} swaps with version {} were done", won.len(), seen.version);
    let after = k.read().await;
    assert_eq!(after.record, nexts[won[0]], "the stored record is not the winner's");
    assert_ne!(after.version, seen.version, "the winner left the version as it was");
}

pub async fn one_of_several_racing_swaps_with_one_version_wins(s: &CasSubject) {
    for round in 0..s.race_rounds() {
        one_wins(s, round, |_| false).await;
    }
}

pub async fn one_of_several_racing_writes_and_deletions_with_one_version_wins(s: &CasSubject) {
    for round in 0..s.race_rounds() {
        one_wins(s, round, |n| n % 2 == 1).await;
    }
}

pub async fn no_update_is_lost_among_racing_ones(s: &CasSubject) {
    const EACH: u32 = 10;
    const WRITERS: u32 = 4;
    for round in 0..2 {
        let k = s.hand(&format!("round {round}"));
        k.put(&k.sample(0).await).await;
        let raise = async |k: crate::conformance::cas::Hand| {
            let mut raised = 0;
            for _ in 0..PATIENCE {
                if raised == EACH {
                    return;
                }
                let seen = k.read().await;
                let n = seen.record.expect("no caller deletes it").attempt;
                if k.swap(seen.version, Some(&held(seen.now, n + 1))).await {
                    raised += 1;
                } else {
                    tokio::task::yield_now().await;
                }
            }
            panic!("a swap with the version just read was refused again and again: {raised} of {EACH} were done");
        };
        race(round, (0..WRITERS).map(|_| raise(k.clone())).collect()).await;
        let counted = k.record().await.map(|record| record.attempt);
        assert_eq!(counted, Some(EACH * WRITERS), "an update that was said to be done is gone");
    }
}

pub async fn a_read_gives_the_record_and_the_version_of_one_moment(s: &CasSubject) {
    const WRITES: u32 = 50;
    let k = s.hand("k");
    k.put(&k.sample(0).await).await;
    let done = Cell::new(false);
    let reader = async || {
        let mut pairs = Vec::new();
        loop {
            let last = done.get();
            let seen = k.read().await;
            pairs.push((seen.version, seen.record.map(|record| record.attempt)));
            if last {
                return pairs;
            }
            tokio::task::yield_now().await;
        }
    };
    let writer = async || {
        let mut pairs = Vec::new();
        for n in 1..=WRITES {
            pairs.push((k.put(&k.sample(n).await).await, Some(n)));
            tokio::task::yield_now().await;
        }
        done.set(true);
        pairs
    };
    type Pairs<'a> = Pin<Box<dyn Future<Output = Vec<(u64, Option<u32>)>> + 'a>>;
    let racing: Vec<Pairs<'_>> = vec![Box::pin(reader()), Box::pin(writer()), Box::pin(reader())];
    // The writer is the only one, so the record that it reads is current.
    let answers = in_turns(racing).await;
    let written: HashMap<_, _> = answers[1].iter().copied().collect();
    for read in [&answers[0], &answers[2]] {
        let seen = read.last().and_then(|(_, n)| *n);
        assert_eq!(seen, Some(WRITES), "the last write was not seen: swap said true and wrote nothing");
    }
    for (version, n) in answers.into_iter().flatten() {
        let true_one = written.get(&version).copied().unwrap_or(Some(0));
        assert_eq!(n, true_one, "a read gave version {version} with the record of another version");
    }
}

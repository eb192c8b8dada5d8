//! Random interleavings of workers, faults and deaths, one for each seed, and the invariants I1–I14 over what came
//! of each.
//!
//! `SEED=17 cargo test --test invariants memory -- --nocapture` prints one seed's history; `SEEDS=20000` runs more
//! of them, from `FIRST` on. `sqlite` likewise.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, unreachable_pub)]
#[path = "invariants/check.rs"]
mod check;
#[path = "invariants/coverage.rs"]
mod coverage;
#[path = "invariants/dice.rs"]
mod dice;
#[path = "invariants/flawed.rs"]
mod flawed;
#[path = "invariants/handler.rs"]
mod handler;
#[path = "invariants/history.rs"]
mod history;
#[path = "invariants/ledger.rs"]
mod ledger;
#[path = "invariants/plan.rs"]
mod plan;
#[path = "invariants/process.rs"]
mod process;
#[path = "invariants/red.rs"]
mod red;
#[path = "invariants/scripted.rs"]
mod scripted;
#[path = "invariants/tape.rs"]
mod tape;
#[path = "invariants/world.rs"]
mod world;

use std::sync::Arc;
use std::thread::scope;

use idempotent::{MemoryStore, Store};
use idempotent_sqlx::{SqliteStore, Synchronous};
use idempotent_testkit::VirtualClock;

use crate::coverage::Coverage;
use crate::history::History;
use crate::plan::Plan;

/// A plan's history on the store that `open` makes.
fn on<S: Store>(plan: Plan, open: impl FnOnce(&VirtualClock) -> Arc<S>) -> History {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let clock = VirtualClock::new();
        let store = open(&clock);
        world::simulate(plan, clock, store).await
    })
}

fn on_memory(seed: u64) -> History {
    on(Plan::of(seed), |clock| Arc::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build()))
}

fn on_sqlite(seed: u64) -> History {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db").to_str().unwrap().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = VirtualClock::new();
        let builder = SqliteStore::builder(path).clock(Arc::new(clock.clone())).synchronous(Synchronous::Normal);
        let store = builder.open().await.unwrap();
        world::simulate(Plan::of(seed), clock, Arc::new(store)).await
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Runs the seeds in two threads; what they have seen.
fn campaign(seeds: u64, run: fn(u64) -> History) -> Coverage {
    if let Some(seed) = number("SEED") {
        println!("{}", run(seed).print());
    }
    let first = number("SEED").or(number("FIRST")).unwrap_or(0);
    let seeds = if number("SEED").is_some() { 1 } else { number("SEEDS").unwrap_or(seeds) };
    let half = |nth: u64| {
        let (mut coverage, mut bad) = (Coverage::default(), Vec::new());
        for seed in (first..first + seeds).filter(|seed| seed % 2 == nth) {
            let history = run(seed);
            coverage.add(&history);
            bad.extend(
                check::violations(&history)
                    .into_iter()
                    .map(|(name, error)| format!("SEED={seed} {name}: {error:.700}")),
            );
        }
        (coverage, bad)
    };
    let [(mut coverage, mut bad), (other, more)] = scope(|threads| {
        let threads = [0, 1].map(|nth| threads.spawn(move || half(nth)));
        threads.map(|thread| thread.join().unwrap())
    });
    coverage.merge(other);
    bad.extend(more);
    println!("{coverage:#?}");
    assert!(bad.is_empty(), "{} violations, print a history by SEED=…:\n{}", bad.len(), bad.join("\n"));
    coverage
}

#[test]
fn the_invariants_hold_on_the_memory_store() {
    let coverage = campaign(1_000, on_memory);
    assert!(number("SEED").is_some() || coverage.missing().is_empty(), "never happened: {:?}", coverage.missing());
}

#[test]
fn the_invariants_hold_on_the_sqlite_store() {
    campaign(60, on_sqlite);
}

#[test]
fn a_seed_says_it_all() {
    for seed in 0..number("SEEDS").unwrap_or(50) {
        let [one, two] = [on_memory(seed), on_memory(seed)];
        assert_eq!(one.print(), two.print(), "SEED={seed}");
        assert_eq!(one.calls, two.calls, "SEED={seed}");
    }
}

//! The simulator over our own stores, and what chance takes long to find told step by step.
//!
//! `cargo xtask sim` plays more seeds, and replays one.
#![allow(clippy::unwrap_used, clippy::panic)]
#[path = "common/bare.rs"]
mod bare;
#[path = "invariants/scripted.rs"]
mod scripted;
#[path = "invariants/together.rs"]
mod together;

use std::ops::Range;
use std::sync::Arc;

use idempotent::{MemoryStore, Store};
use idempotent_sqlx::{SqliteStore, Synchronous};
use idempotent_testkit::VirtualClock;
use idempotent_testkit::sim::{self, Plan, Simulated};

fn memory(clock: &VirtualClock) -> Arc<dyn Store> {
    Arc::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build())
}

fn on_sqlite(seed: u64) -> Simulated {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db").to_str().unwrap().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = VirtualClock::new();
        let builder = SqliteStore::builder(path).clock(Arc::new(clock.clone())).synchronous(Synchronous::Normal);
        let store = Arc::new(builder.open().await.unwrap());
        sim::play_on(&Plan::of(seed), &clock, store).await
    })
}

#[test]
fn the_invariants_hold_on_the_memory_store_in_1_000_worlds() {
    let campaign = sim::campaign(0..1_000, |_, clock| memory(clock));
    assert!(campaign.failed.is_empty(), "`cargo xtask sim --seed N` shows one of them: {:#?}", campaign.failed);
    assert!(campaign.coverage.missing().is_empty(), "never happened: {:?}", campaign.coverage.missing());
}

#[test]
fn the_invariants_hold_on_the_sqlite_store_in_60_worlds() {
    let half = |seeds: Range<u64>| {
        seeds.for_each(|seed| {
            let world = on_sqlite(seed);
            assert!(world.violations.is_empty(), "seed {seed}: {}", world.explain());
        });
    };
    std::thread::scope(|threads| {
        for seeds in [0..30, 30..60] {
            threads.spawn(move || half(seeds));
        }
    });
}

#[test]
fn a_seed_gives_the_same_bytes_each_time() {
    for seed in 0..50 {
        let [one, two] = [sim::run(seed, memory), sim::run(seed, memory)];
        assert_eq!(one.history.to_text(), two.history.to_text(), "seed {seed}");
        assert_eq!(one.explain(), two.explain(), "seed {seed}");
    }
}

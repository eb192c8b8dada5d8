//! Simulations of the project's stores.
//!
//! `cargo xtask sim` runs more seeds, and replays single ones.
use std::ops::Range;
use std::sync::Arc;

use idempotent::{MemoryStore, Store};
use idempotent_simulator::{self as sim, Plan, Simulated};
use idempotent_sqlx::{SqliteStore, Synchronous};
use idempotent_testkit::VirtualClock;

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

fn hold_on_memory(seeds: Range<u64>) {
    let campaign = sim::campaign(seeds, |_, clock| memory(clock));
    assert!(campaign.failed.is_empty(), "`cargo xtask sim --seed N` shows one of them: {:#?}", campaign.failed);
    assert!(campaign.coverage.missing().is_empty(), "never happened: {:?}", campaign.coverage.missing());
}

fn hold_on_sqlite(seeds: Range<u64>) {
    for seed in seeds {
        let world = on_sqlite(seed);
        assert!(world.violations.is_empty(), "seed {seed}: {}", world.explain());
    }
}

#[test]
fn the_invariants_hold_on_the_memory_store_in_200_worlds() {
    hold_on_memory(0..200);
}

#[test]
fn the_invariants_hold_on_the_sqlite_store_in_20_worlds() {
    hold_on_sqlite(0..20);
}

mod extras {
    #[test]
    fn the_invariants_hold_on_the_memory_store_in_1_000_worlds() {
        super::hold_on_memory(0..1_000);
    }

    #[test]
    fn the_invariants_hold_on_the_sqlite_store_in_60_worlds() {
        super::hold_on_sqlite(0..60);
    }

    #[test]
    fn each_of_50_seeds_gives_the_same_bytes_each_time() {
        super::give_the_same(0..50);
    }
}

#[test]
fn a_seed_gives_the_same_bytes_each_time() {
    give_the_same(0..10);
}

fn give_the_same(seeds: Range<u64>) {
    for seed in seeds {
        let [one, two] = [sim::run(seed, memory), sim::run(seed, memory)];
        assert_eq!(one.history.to_text(), two.history.to_text(), "seed {seed}");
        assert_eq!(one.explain(), two.explain(), "seed {seed}");
    }
}

//! Random interleavings of workers, faults and deaths, one for each seed, and the invariants I1–I14 over what came
//! of each.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, unreachable_pub)]
#[path = "invariants/check.rs"]
mod check;
#[path = "invariants/dice.rs"]
mod dice;
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
#[path = "invariants/tape.rs"]
mod tape;
#[path = "invariants/world.rs"]
mod world;

use std::sync::Arc;

use idempotent::MemoryStore;
use idempotent_testkit::VirtualClock;

use crate::history::History;
use crate::plan::Plan;

fn on_memory(seed: u64) -> History {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let clock = VirtualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        world::simulate(Plan::of(seed), clock, Arc::new(store)).await
    })
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn memory() {
    if std::env::var("SEED").is_ok() {
        let history = on_memory(number("SEED", 0));
        println!("{}", history.print());
        for (name, error) in check::violations(&history) {
            println!("{name}: {error}");
        }
        return;
    }
    let first = number("FIRST", 0);
    let mut bad = 0;
    for seed in first..first + number("SEEDS", 100) {
        let history = on_memory(seed);
        for (name, error) in check::violations(&history) {
            bad += 1;
            println!("seed {seed}: {name}: {error}");
        }
    }
    assert_eq!(bad, 0);
}

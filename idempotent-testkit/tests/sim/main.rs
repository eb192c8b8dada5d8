//! The simulator's checks notice a store that is wrong, and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use idempotent_core::Store;
use idempotent_testkit::VirtualClock;
use idempotent_testkit::mutants::{Bug, Mutant};
use idempotent_testkit::sim;

fn mutant(bug: Option<Bug>, clock: &VirtualClock) -> Arc<dyn Store> {
    Arc::new(Mutant::new(bug, Arc::new(clock.clone())))
}

#[test]
#[ignore]
fn explore() {
    let most: u64 = std::env::var("SEEDS").map_or(200, |text| text.parse().unwrap());
    let only = std::env::var("BUG").unwrap_or_default();
    for bug in std::iter::once(None).chain(Bug::ALL.iter().copied().map(Some)) {
        if !only.is_empty() && !format!("{bug:?}").contains(&only) {
            continue;
        }
        if let Ok(first) = std::env::var("TRACE") {
            for seed in first.parse::<u64>().unwrap()..most {
                eprintln!("{seed}");
                drop(sim::run(seed, |clock| mutant(bug, clock)));
            }
            continue;
        }
        let began = Instant::now();
        let (mut told, mut applied) = (BTreeMap::new(), BTreeMap::new());
        for seed in 0..most {
            let world = sim::run(seed, |clock| mutant(bug, clock));
            for violation in world.violations {
                let first = if violation.name.ends_with("applied") { &mut applied } else { &mut told };
                first.entry(violation.name).or_insert(seed);
            }
            if began.elapsed().as_secs() > 9 || told.len() > 2 || (!told.is_empty() && seed > 20) {
                println!("  at {seed}");
                break;
            }
        }
        println!("{bug:?}: {told:?} {applied:?} in {:?}", began.elapsed());
    }
}

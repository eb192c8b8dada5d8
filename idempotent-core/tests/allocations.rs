//! The allocations of a run and of a rejected key, in a binary of their own: the allocator counts for the whole process.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs)]
use std::alloc::System;
use std::sync::{Mutex, PoisonError};

use idempotent_core::{Call, DefaultReply, Executor, Handler, Identity, Json, MemoryStore, Outcome, Rejection, Scene};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Held by the test that counts.
static COUNTING: Mutex<()> = Mutex::new(());

const SIZE: usize = 1 << 20;

async fn run(executor: &Executor, identity: Identity) -> Option<Outcome> {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, Rejection>(()) });
    Outcome::capture(executor.run(Call::new(identity), handler)).await.1
}

/// The allocations of a run over the memory store, with those of its identity (2) and of its record (4).
const FRESH: usize = 11;
/// The same for a duplicate, which writes no record.
const DUPLICATE: usize = 7;

/// The counts do not depend on the load of the machine, so a run cannot become more expensive unnoticed. Lower the
/// constants after an improvement.
#[test]
fn runs_and_duplicates_allocate_no_more_than_before() {
    let _counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let executor = Executor::new(MemoryStore::new());
    runtime.block_on(async {
        // Tables and pools reach their size.
        for number in 0..1_000_u64 {
            run(&executor, Identity::new(Scene::Mq, "pay", &number)).await;
        }
        for (numbers, outcome, most) in
            [(1_000..1_100_u64, Outcome::Ran, FRESH), (900..1_000, Outcome::Replayed, DUPLICATE)]
        {
            // A table that grows, or the test harness, adds allocations to some of the runs.
            let mut least = usize::MAX;
            for number in numbers {
                let region = Region::new(ALLOCATOR);
                assert_eq!(run(&executor, Identity::new(Scene::Mq, "pay", &number)).await, Some(outcome.clone()));
                least = least.min(region.change().allocations);
            }
            assert_eq!(least, most, "allocations, and those before: {outcome:?}");
        }
    });
}

#[test]
fn a_rejected_key_of_a_mebibyte_is_not_copied() {
    let _counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let executor = Executor::new(MemoryStore::new());
    let key = "k".repeat(SIZE);
    runtime.block_on(async {
        assert_eq!(run(&executor, Identity::new(Scene::Mq, "pay", "warm")).await, Some(Outcome::Ran));
        for parts in 1..=3 {
            let region = Region::new(ALLOCATOR);
            let identity = match parts {
                1 => Identity::new(Scene::Mq, "pay", &key),
                2 => Identity::new(Scene::Mq, "pay", &("o-17", &key)),
                _ => Identity::new(Scene::Mq, "pay", &(&key, "o-17", &key)),
            };
            let outcome = run(&executor, identity).await;
            let allocated = region.change().bytes_allocated;
            assert!(!matches!(outcome, Some(Outcome::Ran)), "{outcome:?}");
            // The test harness and the error text allocate a little.
            assert!(allocated < SIZE / 8, "{allocated} bytes for a key of {parts} parts");
        }
    });
}

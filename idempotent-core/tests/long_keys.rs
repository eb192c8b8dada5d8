//! The memory that a rejected key costs, in a binary of its own: the allocator counts for the whole process.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs)]
use std::alloc::System;

use idempotent_core::{Call, DefaultReply, Executor, Handler, Identity, Json, MemoryStore, Outcome, Rejection, Scene};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SIZE: usize = 1 << 20;

async fn run(executor: &Executor, identity: Identity) -> Option<Outcome> {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, Rejection>(()) });
    Outcome::capture(executor.run(Call::new(identity), handler)).await.1
}

#[test]
fn a_rejected_key_of_a_mebibyte_is_not_copied() {
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

//! The memory of a stored key: `cargo xtask bench core`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs, unreachable_pub, dead_code)]
mod floors;
mod keys;
mod report;

use std::alloc::System;

use idempotent::reply::DefaultReply;
use idempotent::{Call, Executor, Handler, Json, MemoryStore, Rejection};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use self::floors::BareMap;
use self::report::{Goal, Report};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let report = Report::from_args("core");
    if !report.wants("memory", "heap of a consumed key") {
        return;
    }
    let keys = report.keys();
    let region = Region::new(ALLOCATOR);
    let bare = BareMap::new();
    (0..keys).for_each(|number| bare.insert_and_update(number));
    let floor = held(&region, keys);
    assert!(bare.look_up(keys - 1));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let executor = Executor::new(MemoryStore::builder().max_entries(usize::MAX).build());
    let region = Region::new(ALLOCATOR);
    runtime.block_on(async {
        for number in 0..keys {
            let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<(), Rejection>(()) });
            executor.run(Call::new(keys::identity(number)), handler).await.unwrap();
        }
    });
    let value = held(&region, keys);
    assert_eq!(executor.counts().of("ran"), keys);

    report.value(("memory", "heap of a consumed key", Some(1)), "B", value, Goal::AtMost(160.0));
    report.value(("bare map", "heap of a key", Some(1)), "B", floor, Goal::None);
}

/// Returns the held bytes for each key.
fn held(region: &Region<'_, System>, keys: u64) -> f64 {
    let change = region.change();
    let bytes = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
    bytes / keys as f64
}

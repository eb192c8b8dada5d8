//! The longest run while the store grows to a million keys.
use std::time::{Duration, Instant};

use idempotent::{Executor, MemoryStore};

use crate::floors::BareMap;
use crate::memory::run;
use crate::report::{Goal, Report};

/// The number of repetitions: a stall of the store returns each time, and one of the machine does not.
const TIMES: usize = 3;

pub async fn all(report: &Report) {
    if !report.wants("memory", "longest run while growing") {
        return;
    }
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        bare.push(while_the_bare_map_grows(report.keys()));
        ours.push(while_growing(report.keys()).await);
    }
    let least = |longest: Vec<Duration>| longest.into_iter().min().unwrap_or_default().as_secs_f64() * 1e3;
    report.value(("memory", "longest run while growing", Some(1)), "ms", least(ours), Goal::AtMost(5.0));
    report.value(("bare map", "longest step while growing", Some(1)), "ms", least(bare), Goal::None);
}

async fn while_growing(keys: u64) -> Duration {
    let executor = Executor::new(MemoryStore::builder().max_entries(usize::MAX).build());
    let mut longest = Duration::ZERO;
    for number in 0..keys {
        let start = Instant::now();
        run(executor.clone(), number).await;
        longest = longest.max(start.elapsed());
    }
    longest
}

fn while_the_bare_map_grows(keys: u64) -> Duration {
    let bare = BareMap::new();
    let mut longest = Duration::ZERO;
    for number in 0..keys {
        let start = Instant::now();
        bare.insert_and_update(number);
        longest = longest.max(start.elapsed());
    }
    longest
}

//! Tests of the simulator: its checks detect faulty stores, and plans that once found a bug still pass.
mod bugs;
mod flawed;
mod regressions;
mod shrinking;

use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `ask` for each item on as many threads as the machine has processors, and returns the results in order.
pub(crate) fn each<T: Sync, S: Send>(all: &[T], ask: impl Fn(&T) -> S + Sync) -> Vec<S> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut said = Vec::new();
        while let Some((at, one)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, all.get(at)?))) {
            said.push((at, ask(one)));
        }
        said
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut said: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    said.sort_by_key(|(at, _)| *at);
    said.into_iter().map(|(_, said)| said).collect()
}

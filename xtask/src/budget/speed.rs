//! The speed of the machine while a part of CI runs. Programs of other guests on the same hardware increase the
//! processor time of the same work, so limits of processor time apply to a machine of nominal speed.
use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two samples.
const PAUSE: Duration = Duration::from_secs(10);
/// The processor time of a sample in ns on the machine for which the limits are set, while both of its cores were idle.
const NOMINAL: f64 = 150e6;
/// The repetitions in a sample, which make it long compared with the kernel's resolution of 4 ms.
const ROUNDS: usize = 20;
/// The number of indices in the pointer chase, 16 MiB: more than the caches of one core.
const INDICES: usize = 4 << 20;
/// An odd step, so that the chase visits all indices.
const STEP: usize = 2_654_435_761;

/// A thread that samples the speed of the machine.
#[derive(Debug)]
pub(super) struct SpeedSampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<u64>>,
}

impl SpeedSampler {
    pub(super) fn start() -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let indices: Vec<u32> = (0..INDICES).map(|at| (at.wrapping_add(STEP) % INDICES) as u32).collect();
            let mut samples = Vec::new();
            loop {
                samples.extend(sample(&indices));
                if stopped.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    return samples;
                }
            }
        });
        Self { stop, thread }
    }

    /// Returns the processor time of a sample relative to the nominal one: 1 on the nominal machine, 2 on a machine that
    /// is half as fast.
    pub(super) fn end(self) -> f64 {
        drop(self.stop);
        let samples = self.thread.join().unwrap_or_default();
        // A system without `/proc` has no samples.
        if samples.is_empty() { 1.0 } else { samples.iter().sum::<u64>() as f64 / samples.len() as f64 / NOMINAL }
    }
}

/// Returns the processor time of a fixed piece of work in ns, or `None` on a system without `/proc`. The work resembles
/// that of a compiler: it allocates, compares texts, and reads memory that is in no cache.
fn sample(indices: &[u32]) -> Option<u64> {
    let before = thread_time()?;
    for _ in 0..ROUNDS {
        let names = (0..4_000_usize).map(|n| (format!("name-{}", n.wrapping_mul(STEP)), n));
        let mut at = names.collect::<BTreeMap<_, _>>().values().sum::<usize>() % indices.len();
        for _ in 0..100_000 {
            at = indices[at] as usize;
        }
        black_box(at);
    }
    Some(thread_time()? - before)
}

/// Returns the processor time of this thread in ns.
fn thread_time() -> Option<u64> {
    let times = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    times.split(' ').next()?.parse().ok()
}

//! Processor time of a process, and the runtime whose threads keep theirs.
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// Creates the runtime of a bench, with this number of threads.
pub fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        // A thread that ends takes its processor time with it, so threads stay alive.
        .thread_keep_alive(Duration::from_secs(3_600))
        .build()
        .unwrap()
}

/// Returns the processor time of all running threads in ns. The ticks in `/proc/PID/stat` are too coarse for a slice.
pub fn spent(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanos = |thread: std::io::Result<std::fs::DirEntry>| {
        let times = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        times.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(nanos).sum())
}

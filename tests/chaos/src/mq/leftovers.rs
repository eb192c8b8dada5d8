//! Processes that outlive what started them.
use std::fs;
use std::time::{Duration, Instant};

/// The time for a consumer to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The children that this process still has, by name, once they have had the time to end.
pub(super) fn processes() -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = children();
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn children() -> Vec<String> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids: Vec<String> =
        lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    let named = |pid: &String| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
    pids.iter().map(|pid| format!("{} ({pid})", named(pid))).collect()
}

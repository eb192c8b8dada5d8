//! The private servers and the proxy do what their docs say. They need what `cargo xtask setup` installs.
mod databases;
mod groups;
mod proxy;
mod rabbit;
mod single;
mod tls;

use std::path::Path;

/// Whether there is such a process, other than one that is only not yet waited for.
fn exists(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Path::new(&format!("/proc/{pid}")).exists() && !stat.contains(") Z ")
}

/// Until it is so, for a minute.
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !so() {
        assert!(start.elapsed().as_secs() < 60, "after a minute still not: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

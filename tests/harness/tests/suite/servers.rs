//! Tests of the private servers and of the proxy. `cargo xtask setup` installs the servers.
mod databases;
mod groups;
mod proxy;
mod rabbit;
mod single;
mod tls;

use std::path::Path;

/// Returns whether the process exists and is not a zombie.
pub fn exists(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Path::new(&format!("/proc/{pid}")).exists() && !stat.contains(") Z ")
}

/// Waits until the condition holds, and panics after a minute.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !so() {
        assert!(start.elapsed().as_secs() < 60, "after a minute still not: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

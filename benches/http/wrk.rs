//! The load generator wrk.
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The number of connections, each with one request in flight.
pub const CONNECTIONS: usize = 64;

/// The parameters of a load.
pub struct Load<'a> {
    pub address: SocketAddr,
    /// The start of the keys.
    pub prefix: &'a str,
    /// The number of keys, used in turn; `None` for a new key each time.
    pub keys: Option<u64>,
    /// A file with names of callers, one per line.
    pub users: &'a Path,
    pub seconds: u64,
}

/// The result of a load.
pub struct Answered {
    pub requests: u64,
    pub wall: Duration,
    pub p99: Duration,
}

impl Load<'_> {
    /// Runs the load. All answers must be 2xx, and no connection may break.
    pub fn run(&self) -> Answered {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("load.lua");
        let output = Command::new("wrk")
            .arg("--threads=1")
            .arg(format!("--connections={CONNECTIONS}"))
            .arg(format!("--duration={}s", self.seconds))
            .arg("--script")
            .arg(script)
            .arg(format!("http://{}/orders", self.address))
            .args(["--", self.prefix, &self.keys.unwrap_or(0).to_string()])
            .arg(self.users)
            .output()
            .expect("`wrk` drives this bench: `cargo xtask setup` installs it");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "wrk: {text}{}", String::from_utf8_lossy(&output.stderr));
        let done = text.lines().find_map(|line| line.strip_prefix("done ")).expect("the script's last line");
        let numbers: Vec<u64> = done.split(' ').map(|number| number.parse().unwrap()).collect();
        let [requests, wall, p99, refused, broken] = numbers[..] else { panic!("five numbers: {done}") };
        assert_eq!((refused, broken), (0, 0), "all are answered 2xx: {text}");
        Answered { requests, wall: Duration::from_micros(wall), p99: Duration::from_micros(p99) }
    }
}

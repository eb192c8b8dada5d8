//! Private servers for tests: real ones, each with its own folder and ports, gone with its value.
//!
//! | I want … | start |
//! |---|---|
//! | one Redis | [`RedisServer::start`]; with TLS, a password, an append-only file, a clock to shift: [`RedisBuilder`] |
//! | a primary with replicas, and nobody who fails over | [`RedisReplicas`] |
//! | a primary, a replica and three sentinels | [`RedisSentinels`] |
//! | a cluster | [`RedisCluster`] |
//! | a RabbitMQ | [`RabbitServer`] |
//! | a PostgreSQL, also one with TLS | [`PostgresServer`] |
//! | a PgBouncer in front of a PostgreSQL | [`PgBouncer`] |
//! | a MariaDB, also one with TLS | [`MariaDbServer`] |
//! | a RocketMQ, which `cargo xtask setup --brokers` has built | [`RocketServer`] |
//!
//! They listen on 127.0.0.1 only, on a free port between 12000 and 20000 (a cluster node also 10,000 above), so that
//! any number of them run side by side. A server that cannot start panics, and says why and what to install.
//!
//! A value stops its processes when it is dropped. Where that never happens, because the test was killed or the value
//! is in a `static`, a watchdog process kills them as soon as the test's process is gone, and removes the folder.
//! After a panic the end of the log goes to stderr, and all of it into `idempotent-logs` beside the folders; the last
//! 100 stay there.
//!
//! [`SERVER`] names another flavour to start instead of `redis-server`.
//!
//! Everything here blocks, for milliseconds as a rule. Nothing needs a runtime.
#![allow(clippy::panic, reason = "a test without its server has failed")]
mod builder;
mod clock;
mod cluster;
mod daemon;
mod files;
mod mariadb;
mod pgbouncer;
pub(crate) mod port;
mod postgres;
mod process;
mod rabbit;
mod replicas;
mod resp;
mod rocket;
mod sentinels;
mod single;
mod tls;

pub use self::builder::RedisBuilder;
pub use self::cluster::RedisCluster;
pub use self::mariadb::{MARIADB_BIN, MariaDbServer};
pub use self::pgbouncer::{PGBOUNCER, PgBouncer};
pub use self::postgres::{POSTGRES_BIN, PostgresServer};
pub use self::rabbit::{RABBITMQ_SBIN, RabbitServer};
pub use self::replicas::RedisReplicas;
pub use self::resp::{Connection, Value};
pub use self::rocket::{ROCKETMQ_BIN, RocketServer};
pub use self::sentinels::RedisSentinels;
pub use self::single::RedisServer;
pub use self::tls::Certificates;

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

/// The environment variable that names the program to start instead of `redis-server`: a path or a name on the
/// `PATH`, for instance the `valkey-server` that `cargo xtask setup --flavours` unpacks.
pub const SERVER: &str = "IDEMPOTENT_REDIS_SERVER";

/// For a state that is sure to come, on a machine that is doing other things.
const PATIENCE: Duration = Duration::from_secs(180);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Looks until it is so.
///
/// # Errors
/// `what`, where it has not become so in [`PATIENCE`].
fn until(what: &str, mut so: impl FnMut() -> bool) -> Result<(), String> {
    let start = Instant::now();
    while !so() {
        if start.elapsed() > PATIENCE {
            return Err(format!("after {} s still not: {what}", PATIENCE.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// `NAME=PATH`, for a program that takes its settings so.
fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(format!("{name}="));
    option.push(path);
    option
}

/// What a test does that cannot go on: it panics.
fn or_panic<T>(done: Result<T, String>) -> T {
    done.unwrap_or_else(|why| panic!("{why}"))
}

/// Why a program could not be started.
fn missing(program: &str, e: &std::io::Error) -> String {
    match e.kind() {
        std::io::ErrorKind::NotFound => {
            format!("`{program}` is not installed: `cargo xtask setup` installs what the tests need")
        }
        _ => format!("`{program}` cannot be started: {e}"),
    }
}

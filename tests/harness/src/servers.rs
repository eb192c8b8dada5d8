//! Private servers for tests: real servers, each with its own folder and ports, which stop when the value is dropped.
//!
//! | server | type |
//! |---|---|
//! | one Redis server | [`RedisServer::start`]; for TLS, a password, an append-only file, or a clock to shift: [`RedisBuilder`] |
//! | a primary with replicas, without failover | [`RedisReplicas`] |
//! | a primary, a replica and three sentinels | [`RedisSentinels`] |
//! | a Redis Cluster | [`RedisCluster`] |
//! | RabbitMQ | [`RabbitServer`] |
//! | a RabbitMQ cluster of three nodes | [`RabbitCluster`] |
//! | PostgreSQL, also with TLS | [`PostgresServer`] |
//! | NATS with JetStream | [`NatsServer`] |
//! | a NATS cluster of three nodes | [`NatsCluster`] |
//! | Kafka's protocol, by tansu | [`KafkaServer`] |
//! | MQTT, by mosquitto | [`MosquittoServer`] |
//! | Amazon SQS and DynamoDB, by moto, also with TLS | [`MotoServer`] |
//! | PgBouncer in front of PostgreSQL | [`PgBouncer`] |
//! | MariaDB, also with TLS | [`MariaDbServer`] |
//! | Prometheus, unpacked by `cargo xtask setup` | [`PrometheusServer`] |
//! | RocketMQ, built by `cargo xtask setup --brokers` | [`RocketServer`] |
//! | a server of another protocol, or one that never answers | [`stranger`] |
//!
//! The servers listen on 127.0.0.1 only, on a free port between 12000 and 20000 (a cluster node also 10,000 above), so
//! that any number of them can run at the same time. If a server cannot start, the panic shows the reason and the
//! missing package.
//!
//! Dropping a value stops its processes. If the value is never dropped, because the test was killed or the value is in
//! a `static`, a watchdog process kills the servers when the test's process has ended, and removes the folder. After a
//! panic, the end of the log is printed to stderr, and the whole log is copied to `idempotent-logs` next to the
//! folders, where the last 100 are kept.
//!
//! [`SERVER`] names another program to start instead of `redis-server`.
//!
//! All functions of this module block, usually for milliseconds. None needs a runtime.
#![allow(clippy::panic, reason = "a test without its server has failed")]
mod builder;
mod clock;
mod cluster;
mod daemon;
mod files;
mod kafka;
mod mariadb;
mod mosquitto;
mod moto;
mod nats;
mod nats_cluster;
mod pgbouncer;
pub(crate) mod port;
mod postgres;
mod process;
mod prometheus;
mod rabbit;
mod rabbit_cluster;
mod replicas;
mod resp;
mod rocket;
mod sentinels;
mod single;
mod stranger;
mod tls;

pub use self::builder::RedisBuilder;
pub use self::cluster::RedisCluster;
pub use self::kafka::{KAFKA, KafkaServer};
pub use self::mariadb::{MARIADB_BIN, MariaDbServer};
pub use self::mosquitto::MosquittoServer;
pub use self::moto::{MOTO, MotoServer, UnusableEndpoint, unusable_endpoints};
pub use self::nats::{NATS, NatsServer};
pub use self::nats_cluster::NatsCluster;
pub use self::pgbouncer::{PGBOUNCER, PgBouncer};
pub use self::postgres::{POSTGRES_BIN, PostgresServer};
pub use self::prometheus::{PROMETHEUS_BIN, PrometheusServer};
pub use self::rabbit::{RABBITMQ_SBIN, RabbitServer};
pub use self::rabbit_cluster::{QueueReplicas, RabbitCluster};
pub use self::replicas::RedisReplicas;
pub use self::resp::{Connection, Value};
pub use self::rocket::{ROCKETMQ_BIN, RocketServer};
pub use self::sentinels::RedisSentinels;
pub use self::single::RedisServer;
pub use self::stranger::{CLOSED, HTTP, REDIS, SILENT, stranger};
pub use self::tls::Certificates;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The environment variable that names the program to start instead of `redis-server`: a path or a name on the `PATH`,
/// such as the `valkey-server` that `cargo xtask setup --flavours` unpacks.
pub const SERVER: &str = "IDEMPOTENT_REDIS_SERVER";

/// The time limit for a state that is certain to occur, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// The pause between two checks.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `so` returns true.
///
/// # Errors
/// Returns `what` as an error if the state has not occurred within [`PATIENCE`].
fn until(what: &str, mut so: impl FnMut() -> bool) -> Result<(), String> {
    let start = Instant::now();
    while !so() {
        if start.elapsed() > PATIENCE {
            return Err(format!("not within {} s: {what}", PATIENCE.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Returns the path of a file that `cargo xtask setup` has unpacked into the target folder of the workspace.
#[must_use]
pub fn unpacked(file: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    workspace.join(target).join(file)
}

/// Returns `NAME=PATH`, for a program that takes its settings in this form.
fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(format!("{name}="));
    option.push(path);
    option
}

/// Panics with the error, since the test cannot continue.
fn or_panic<T>(done: Result<T, String>) -> T {
    done.unwrap_or_else(|why| panic!("{why}"))
}

/// Returns the message for a program that could not be started.
fn missing(program: &str, e: &std::io::Error) -> String {
    match e.kind() {
        std::io::ErrorKind::NotFound => {
            format!("`{program}` is not installed: `cargo xtask setup` installs what the tests need")
        }
        _ => format!("`{program}` cannot be started: {e}"),
    }
}

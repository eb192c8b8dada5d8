//! The store under test, and what its servers can be made to do.
mod cluster;
mod database;
mod file;
mod loss;
mod sentinels;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use idempotent::{SqliteStore, Store};
use idempotent_harness::servers::{RedisCluster, RedisSentinels, RedisServer};
use idempotent_redis::RedisStore;
use idempotent_testkit::history::{Kind, Label, Line};

use self::database::Databases;
use crate::args::Topology;
use crate::broken_stores::Weakness;
use crate::plan::{Faults, Harm};
use crate::time;

/// Shorter than most locks of the harness's: callers are to see errors, too.
const PATIENCE_WITH_A_LOCK: Duration = Duration::from_millis(600);

/// Opens what a URL names.
pub(crate) async fn connect(url: &str, weakness: Option<&'static Weakness>) -> anyhow::Result<Arc<dyn Store>> {
    if url.starts_with("sqlite") {
        return Ok(Arc::new(SqliteStore::builder(url).busy_timeout(PATIENCE_WITH_A_LOCK).open().await?));
    }
    if !url.starts_with("redis") {
        return idempotent::connect(url)
            .create(true)
            .await
            .with_context(|| format!("the store {url} cannot be opened"));
    }
    let mut builder = RedisStore::builder(url);
    if let Some(weakness) = weakness {
        builder = builder.edit_scripts(|text| weakness.edit(text));
    }
    Ok(Arc::new(builder.connect().await?))
}

/// The faults that were applied to the store.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) harm: Harm,
    /// Records that it rolled back, by when.
    pub(crate) lost: Vec<String>,
    at: u64,
}

impl Done {
    pub(crate) fn new(harm: Harm) -> Self {
        Self { harm, lost: Vec::new(), at: time::now() }
    }

    pub(crate) fn lost_line(&self, key: &str, worker: Label) -> Line {
        Line { key: Some(key.to_owned()), ..Line::new(self.at, worker, Kind::RecordLost) }
    }
}

/// The servers of a run, private or named by the caller.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub(crate) enum Target {
    /// A store that is not ours to harm.
    Outside(String),
    /// An SQLite file.
    File(PathBuf),
    /// One that writes down each change before it answers.
    Single {
        /// The server.
        server: RedisServer,
        /// Its clock is set, so far by this much.
        clock: Option<Mutex<Duration>>,
    },
    /// A primary, a replica and the sentinels that promote the replica. Both servers log each change.
    Sentinels(RedisSentinels),
    /// Three primaries, each with a replica.
    Cluster(RedisCluster),
    /// A database server, alone or with a cache tier.
    Database(Databases),
}

impl Target {
    /// Starts what is not there yet; why not is on stderr.
    pub(crate) fn start(topology: &Topology, folder: &Path) -> anyhow::Result<Self> {
        let started = catch_unwind(AssertUnwindSafe(|| match topology {
            Topology::Outside(url) => Self::Outside(url.clone()),
            Topology::File => Self::File(folder.join("store.db")),
            Topology::Cluster => Self::Cluster(cluster::start()),
            Topology::Database { engine, cached } => Self::Database(Databases::start(*engine, *cached)),
            Topology::Sentinel => Self::Sentinels(sentinels::start()),
            Topology::Single { clock: false } => {
                Self::Single { server: RedisServer::builder().aof().start(), clock: None }
            }
            Topology::Single { clock: true } => {
                Self::Single { server: RedisServer::builder().aof().faketime().start(), clock: Some(Mutex::default()) }
            }
        }));
        started.map_err(|_| anyhow::anyhow!("the servers could not be started"))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Outside(url) => url.clone(),
            Self::File(file) => format!("sqlite:{}", file.display()),
            Self::Single { server, .. } => server.url(),
            Self::Sentinels(group) => group.url(),
            Self::Cluster(group) => group.url(),
            Self::Database(databases) => databases.url(),
        }
    }

    /// Returns the address that a proxy can replace.
    pub(crate) fn address(&self) -> Option<String> {
        match self {
            Self::Single { server, .. } => Some(server.address()),
            _ => None,
        }
    }

    pub(crate) fn faults(&self) -> Faults {
        let ours = Faults { cuts: true, scripts: true, full: true, ..Faults::default() };
        match self {
            Self::Outside(_) => Faults::default(),
            Self::File(_) => Faults { stops: true, ..Faults::default() },
            Self::Single { clock, .. } => Faults { stops: true, crashes: true, clock: clock.is_some(), ..ours },
            // A stopped primary is replaced and continues later. Its history cannot be compared with that of the new
            // primary.
            Self::Sentinels(_) => Faults { failovers: true, ..ours },
            Self::Database(databases) => databases.faults(),
            Self::Cluster(_) => Faults { failovers: true, migrations: true, ..ours },
        }
    }

    /// Returns whether all failovers were made by this harness. The losses of other failovers are not compared.
    pub(crate) fn is_as_we_left_it(&self, failovers: u64) -> bool {
        match self {
            Self::Outside(_) | Self::File(_) | Self::Single { .. } | Self::Database(_) => true,
            Self::Sentinels(group) => {
                let expected = if failovers.is_multiple_of(2) { group.primary() } else { group.replica() };
                group.current_primary().port() == expected.port()
            }
            Self::Cluster(group) => cluster::replaced(group) == failovers,
        }
    }

    /// Returns the running servers.
    fn servers(&self) -> Vec<&RedisServer> {
        match self {
            Self::Outside(_) | Self::File(_) | Self::Database(_) => Vec::new(),
            Self::Single { server, .. } => vec![server],
            Self::Sentinels(group) => vec![group.primary(), group.replica()],
            Self::Cluster(group) => group.nodes().iter().collect(),
        }
    }

    /// Does it, and waits until it is done.
    pub(crate) fn suffer(&self, harm: Harm) -> anyhow::Result<Done> {
        match (self, harm) {
            (Self::Database(databases), _) => return databases.suffer(harm),
            (_, Harm::Cut) => self.servers().into_iter().for_each(cut),
            (_, Harm::FlushScripts) => {
                for server in self.servers() {
                    server.command(&["SCRIPT", "FLUSH"]);
                }
            }
            (_, Harm::FillStore(long)) => self.fill(long),
            (Self::Single { server, clock: Some(set) }, Harm::ClockForward(step)) => {
                let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
                *set += step;
                server.shift_clock(set.as_secs_f64());
            }
            (Self::File(file), Harm::StopStore(long)) => file::lock(file, long)?,
            (Self::Single { server, .. }, Harm::StopStore(long)) => {
                server.pause();
                std::thread::sleep(long);
                server.resume();
            }
            (Self::Single { server, .. }, Harm::CrashStore) => {
                server.kill();
                server.restart();
            }
            (Self::Sentinels(group), Harm::Failover(lag)) => return sentinels::fail_over(group, harm, lag),
            (Self::Cluster(group), Harm::Failover(_)) => return cluster::fail_over(group, harm),
            (Self::Cluster(group), Harm::Migrate) => cluster::migrate(group)?,
            _ => anyhow::bail!("{harm:?} is not for this store"),
        }
        Ok(Done::new(harm))
    }
}

impl Target {
    /// Fills the memory of all servers for this time, so that they refuse commands that need memory.
    fn fill(&self, long: Duration) {
        let limit = |bytes: &str| {
            for server in self.servers() {
                server.command(&["CONFIG", "SET", "maxmemory", bytes]);
            }
        };
        limit("1");
        std::thread::sleep(long);
        limit("0");
    }
}

/// Closes the connections of a server. Subscribers are a separate type of client.
fn cut(server: &RedisServer) {
    for kind in ["normal", "pubsub"] {
        server.command(&["CLIENT", "KILL", "TYPE", kind]);
    }
}

//! A database server as the store, alone or with a Redis as its cache tier.
use std::time::Duration;

use idempotent_harness::servers::{MariaDbServer, PostgresServer, RedisServer};

use super::{Done, cut};
use crate::args::Engine;
use crate::plan::{Faults, Harm};
use crate::server::Server;

/// A database server of this run.
#[derive(Debug)]
pub(crate) enum Database {
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
}

/// The database, and the cache tier in front of it.
#[derive(Debug)]
pub(crate) struct Databases {
    database: Database,
    cache: Option<RedisServer>,
}

impl Database {
    fn server(&self) -> &dyn Server {
        match self {
            Self::Postgres(server) => server,
            Self::MariaDb(server) => server,
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::MariaDb(server) => server.url(),
        }
    }

    fn cut(&self) {
        match self {
            Self::Postgres(server) => server.close_all_connections(),
            Self::MariaDb(server) => server.close_all_connections(),
        }
    }
}

impl Databases {
    pub(super) fn start(engine: Engine, cached: bool) -> Self {
        let database = match engine {
            Engine::Postgres => Database::Postgres(PostgresServer::start_durable()),
            Engine::MariaDb => Database::MariaDb(MariaDbServer::start_durable()),
        };
        Self { database, cache: cached.then(RedisServer::start) }
    }

    /// Returns the URL for `idempotent::connect`.
    pub(super) fn url(&self) -> String {
        let database = self.database.url();
        match &self.cache {
            Some(cache) => format!("tiered:{database}|{}", cache.url()),
            None => database,
        }
    }

    pub(super) fn faults(&self) -> Faults {
        let flushes = self.cache.is_some();
        Faults { cuts: true, stops: true, crashes: true, cache: flushes, ..Faults::default() }
    }

    /// Causes the fault, and waits until it is over.
    pub(super) fn suffer(&self, harm: Harm) -> anyhow::Result<Done> {
        match (harm, &self.cache) {
            (Harm::Cut, cache) => {
                self.database.cut();
                cache.iter().for_each(cut);
            }
            (Harm::StopStore(long), _) => stop(self.database.server(), long),
            (Harm::CrashStore, _) => self.database.server().crash(),
            (Harm::FlushCache, Some(cache)) => drop(cache.command(&["FLUSHALL"])),
            (Harm::StopCache(long), Some(cache)) => stop(cache, long),
            // The cache has no file: a killed server returns empty.
            (Harm::CrashCache, Some(cache)) => cache.crash(),
            _ => anyhow::bail!("{harm:?} is not for this store"),
        }
        Ok(Done::new(harm))
    }
}

fn stop(server: &dyn Server, long: Duration) {
    server.pause();
    std::thread::sleep(long);
    server.resume();
}

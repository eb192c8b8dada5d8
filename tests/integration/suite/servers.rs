//! Worlds over servers: one server for all tests of a binary, and a table for each.
#![allow(unreachable_pub, clippy::unwrap_used, missing_docs)]
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};

use idempotent::{MySqlStore, PostgresStore};
use idempotent_harness::servers::{MariaDbServer, PostgresServer};
use idempotent_testkit::VirtualClock;

use crate::common::{World, runtime};

static POSTGRES: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);
static MARIADB: LazyLock<MariaDbServer> = LazyLock::new(MariaDbServer::start);
static TABLES: AtomicU32 = AtomicU32::new(0);

fn table() -> String {
    format!("records_{}", TABLES.fetch_add(1, SeqCst))
}

macro_rules! on_server {
    ($name:ident, $store:ident, $server:ident) => {
        pub fn $name<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
            runtime().block_on(async {
                let clock = VirtualClock::new();
                let builder = $store::builder($server.url()).table(table()).create(true);
                let store = builder.clock(Arc::new(clock.clone())).connect().await.unwrap();
                test(World::over(store, clock)).await;
            });
        }
    };
}

on_server! { on_postgres, PostgresStore, POSTGRES }
on_server! { on_mariadb, MySqlStore, MARIADB }

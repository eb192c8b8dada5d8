//! Tables on a server.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use idempotent_harness::proxy::Proxy;
use sqlx::pool::PoolOptions;
use sqlx::{Pool, Transaction};

use super::{Db, Server};

static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
static TABLES: AtomicU32 = AtomicU32::new(0);

pub(crate) const BEGIN: &str = "BEGIN";

/// A pool of the caller's, a table's name, and what has to live as long.
pub(crate) async fn fixture(of: &str) -> (Pool<Db>, String, ()) {
    let table = format!("{of}_{}", TABLES.fetch_add(1, Ordering::SeqCst));
    (PoolOptions::new().max_connections(8).connect(&SERVER.url()).await.unwrap(), table, ())
}

/// Begins a separate transaction.
pub(crate) async fn other_transaction(pool: &Pool<Db>) -> Option<Transaction<'static, Db>> {
    Some(pool.begin().await.unwrap())
}

/// Connections that can be cut.
pub(crate) struct Lines(Proxy);

impl Lines {
    pub(crate) async fn new(_: &Pool<Db>) -> Self {
        Self(Proxy::start(&SERVER.address()).await)
    }

    pub(crate) async fn pool(&self) -> Pool<Db> {
        let url = SERVER.url().replace(&SERVER.address(), &self.0.address());
        PoolOptions::new().max_connections(4).connect(&url).await.unwrap()
    }

    pub(crate) fn cut(&self) {
        self.0.cut_all();
    }

    pub(crate) fn begin_outage(&self, is_silent: bool) {
        self.0.begin_outage(is_silent);
    }

    pub(crate) fn end_outage(&self) {
        self.0.end_outage();
    }
}

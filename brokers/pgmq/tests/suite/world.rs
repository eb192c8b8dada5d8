//! A database per test, and helpers.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore};
use idempotent_harness::servers::PostgresServer;
use idempotent_mq::MessageHandler;
use idempotent_pgmq::{PgmqSource, PgmqSourceBuilder};
use idempotent_testkit::broker::testing::billing;
pub(crate) use idempotent_testkit::broker::testing::{
    LIMIT, Running, counting, gated, one, receive, retry, settle, until,
};
use sqlx::{AssertSqlSafe, PgPool, Row};

/// The templates of all databases, in which the newest and an old version of PGMQ are installed.
const TEMPLATES: [&str; 2] = ["with_pgmq", "with_old_pgmq"];

static SERVER: LazyLock<Arc<PostgresServer>> = LazyLock::new(|| prepared(PostgresServer::start()));
static DATABASES: AtomicU32 = AtomicU32::new(0);

fn prepared(server: PostgresServer) -> Arc<PostgresServer> {
    for template in TEMPLATES {
        server.database(template);
    }
    server.install_pgmq(TEMPLATES[0]);
    server.install_old_pgmq(TEMPLATES[1]);
    Arc::new(server)
}

/// A database with PGMQ.
pub(crate) struct Database {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) name: String,
    pub(crate) url: String,
}

impl Database {
    /// Creates a database on the server that all tests share.
    pub(crate) async fn new() -> Self {
        // Starting the server blocks the thread.
        tokio::task::spawn_blocking(|| Self::on(SERVER.clone(), TEMPLATES[0])).await.unwrap()
    }

    /// Creates a database with the old version of PGMQ.
    pub(crate) async fn old() -> Self {
        tokio::task::spawn_blocking(|| Self::on(SERVER.clone(), TEMPLATES[1])).await.unwrap()
    }

    /// Creates a database on a server of its own, which the test may kill.
    pub(crate) async fn alone() -> Self {
        tokio::task::spawn_blocking(|| Self::on(prepared(PostgresServer::start()), TEMPLATES[0])).await.unwrap()
    }

    fn on(server: Arc<PostgresServer>, template: &str) -> Self {
        let name = format!("test_{}", DATABASES.fetch_add(1, SeqCst));
        server.psql("postgres", &format!("CREATE DATABASE {name} TEMPLATE {template}"));
        Self { url: server.url_of(&name), server, name }
    }

    pub(crate) fn address(&self) -> String {
        self.server.address()
    }

    /// Returns the URL at another address, such as that of a proxy.
    pub(crate) fn url_at(&self, address: &str) -> String {
        self.url.replace(&self.address(), address)
    }
}

/// Returns the URL with the scheme of the adapter.
pub(crate) fn pgmq_url(url: &str) -> String {
    url.replacen("postgres://", "pgmq://", 1)
}

/// A queue `orders` in a database of its own.
pub(crate) struct World {
    pub(crate) database: Database,
    pub(crate) client: PgPool,
    pub(crate) executor: Executor,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::of(Database::new().await).await
    }

    pub(crate) async fn of(database: Database) -> Self {
        let client = PgPool::connect_lazy(&database.url).unwrap();
        Self { database, client, executor: Executor::new(MemoryStore::new()) }
    }

    pub(crate) fn url(&self) -> String {
        pgmq_url(&self.database.url)
    }

    /// Returns a builder for the queue `orders`, which redelivers after 1 s.
    pub(crate) fn builder(&self) -> PgmqSourceBuilder {
        Self::builder_at(self.url())
    }

    pub(crate) fn builder_at(url: String) -> PgmqSourceBuilder {
        PgmqSource::builder(url, "orders").declare().visibility_timeout(ms(1_000)).poll(ms(50))
    }

    pub(crate) async fn source(&self) -> PgmqSource {
        self.builder().connect().await.unwrap()
    }

    /// Sends a message by PGMQ, and returns whether the server has confirmed it.
    pub(crate) async fn sent(&self, json: &str) -> bool {
        sqlx::query("SELECT pgmq.send('orders', $1::jsonb)").bind(json).execute(&self.client).await.is_ok()
    }

    pub(crate) async fn send(&self, json: &str) {
        assert!(self.sent(json).await, "the queue does not store `{json}`");
    }

    /// Returns the first column of the first row.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(&self.client).await.unwrap().get(0)
    }

    /// Returns the number of messages that are not acknowledged.
    pub(crate) async fn open(&self) -> i64 {
        self.number("SELECT count(*) FROM pgmq.q_orders").await
    }

    pub(crate) async fn execute(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.client).await.unwrap();
    }

    pub(crate) fn run(&self, source: PgmqSource, handling: MessageHandler) -> Running {
        Running::new(billing(source, &self.executor).build(handling).unwrap())
    }
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

//! A database per test, and helpers.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use idempotent_core::{Executor, MemoryStore, Timestamp};
use idempotent_harness::servers::PostgresServer;
use idempotent_mq::{
    Consumer, ConsumerBuilder, ConsumerCounts, Delivery, MessageHandler, Received, Retry, Schedule, Settle, Settlement,
    Source, SourceError,
};
use idempotent_pgmq::{PgmqSource, PgmqSourceBuilder, PgmqTag};
use sqlx::{AssertSqlSafe, PgPool, Row};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Limit for events that are certain to happen.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

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

/// A consumer that runs in a task.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<ConsumerCounts, SourceError>>,
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

    pub(crate) fn consumer(&self, source: PgmqSource) -> ConsumerBuilder<PgmqSource> {
        let builder = Consumer::builder(source, "billing", &self.executor).prefetch(8).concurrency(4);
        builder.schedule(Schedule::exponential(ms(50), ms(200))).grace(Duration::from_secs(5))
    }

    pub(crate) fn run(&self, source: PgmqSource, handling: MessageHandler) -> Running {
        Running::new(self.consumer(source).build(handling).unwrap())
    }
}

impl Running {
    pub(crate) fn new(consumer: Consumer<PgmqSource>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(consumer.run(async { drop(stopped.await) }));
        Self { stop: Some(stop), task }
    }

    /// Kills the consumer without settling anything.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// Waits until the consumer ends without a request.
    pub(crate) async fn ended_by_itself(self) -> Result<ConsumerCounts, SourceError> {
        tokio::time::timeout(LIMIT, self.task).await.unwrap().unwrap()
    }

    pub(crate) async fn ended(mut self) -> Result<ConsumerCounts, SourceError> {
        drop(self.stop.take());
        tokio::time::timeout(LIMIT, self.task).await.unwrap().unwrap()
    }
}

/// Waits until there are messages.
pub(crate) async fn receive(source: &mut PgmqSource, room: usize) -> Vec<(Delivery, PgmqTag)> {
    let receiving = async {
        loop {
            let Received::Deliveries(some) = source.receive(room).await.unwrap() else { panic!("nothing is revoked") };
            if !some.is_empty() {
                return some;
            }
        }
    };
    tokio::time::timeout(LIMIT, receiving).await.unwrap()
}

pub(crate) async fn one(source: &mut PgmqSource) -> (Delivery, PgmqTag) {
    receive(source, 1).await.pop().unwrap()
}

pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !so().await {
        assert!(start.elapsed() < LIMIT, "still not: {what}");
        tokio::time::sleep(ms(5)).await;
    }
}

pub(crate) async fn settle(settler: &Arc<dyn Settle<PgmqTag>>, held: &(Delivery, PgmqTag), how: Settlement) {
    settler.settle(&held.0, &held.1, &how).await.unwrap();
}

pub(crate) fn retry(after: Duration) -> Settlement {
    Settlement::Retry(Retry::after(after, Timestamp(1)))
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

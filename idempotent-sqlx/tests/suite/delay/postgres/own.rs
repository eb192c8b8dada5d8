//! What is particular to it.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use idempotent_testkit::proxy::Proxy;
use idempotent_testkit::servers::PostgresServer;
use sqlx::Row;

pub(super) type Db = sqlx::Postgres;

static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);
static TABLES: AtomicU32 = AtomicU32::new(0);

/// A pool of the caller's, a table's name, and what has to live as long.
pub(super) async fn place() -> (sqlx::PgPool, String, ()) {
    let table = format!("delay_{}", TABLES.fetch_add(1, Ordering::SeqCst));
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(8);
    (pool.connect(&SERVER.url()).await.unwrap(), table, ())
}

pub(super) const BEGIN: &str = "BEGIN";
/// Fills a table: half of it waits, half is dead.
pub(super) const FILL: &str = "INSERT INTO delay (id,live,headers,body,scheduled_at,due_at,dead_at) \
    SELECT decode(md5(n::text),'hex'),CASE WHEN n%2=0 THEN decode(md5(n::text),'hex') END,'','',1,\
    CASE WHEN n%2=0 THEN FAR+n END,CASE WHEN n%2=1 THEN n END FROM generate_series(1,ROWS) n";
pub(super) const ANALYSE: &str = "ANALYZE delay";

/// Of the plan of a statement: what it reads, and by which index.
pub(super) async fn explain(pool: &sqlx::PgPool, sql: &str) -> String {
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("EXPLAIN {sql}"))).fetch_all(pool).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

/// What a plan must say, one of these, and must not.
pub(super) const BY_INDEX: (&[&str], &[&str]) = (&["Index Cond: (due_at <="], &["Seq Scan on delay"]);
pub(super) const HEX: &str = "decode('DIGITS','hex')";

/// A transaction of somebody else's.
pub(super) async fn beside(pool: &sqlx::PgPool) -> Option<sqlx::Transaction<'static, Db>> {
    Some(pool.begin().await.unwrap())
}

/// Connections that can be cut.
pub(super) struct Lines(Proxy);

impl Lines {
    pub(super) async fn new(_: &sqlx::PgPool) -> Self {
        Self(Proxy::start(&SERVER.address()).await)
    }

    pub(super) async fn pool(&self) -> sqlx::PgPool {
        let url = SERVER.url().replace(&SERVER.address(), &self.0.address());
        sqlx::postgres::PgPoolOptions::new().max_connections(4).connect(&url).await.unwrap()
    }

    pub(super) fn cut(&self) {
        self.0.cut_all();
    }
}

macro_rules! hold {
    ($table:expr) => {
        idempotent_testkit::broker_conformance!(delayed_work_keeps_the_laws, $table);
    };
}
pub(super) use hold;

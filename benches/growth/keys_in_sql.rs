//! Claims in SQL tables with more and more rows. Each commit waits for the disk.
use std::sync::Arc;

use idempotent::{MySqlStore, PostgresStore, SqliteStore, Store};
use idempotent_harness::servers::{MariaDbServer, PostgresServer};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, query};

use crate::keys_in_stores::{CONSUMED, claims, consume_first, numbers, wanted};
use crate::report::Report;

/// One connection for each task.
const CONNECTIONS: u32 = 16;
const OPERATIONS: u64 = 512;
/// A time in µs that is far in the future.
const LATER: u64 = 9_000_000_000_000_000;

/// Returns the columns of a consumed record after its id. `owner` is an expression.
fn consumed(owner: &str) -> String {
    format!("1,'idempotent:rest:bench',2,{owner},1,1,0,NULL,NULL,{LATER},1,1,NULL,NULL,NULL")
}

fn further(keys: u64) -> u64 {
    keys - CONSUMED.min(keys)
}

pub async fn postgres(report: &Report) {
    if !wanted(report, "postgres") {
        return;
    }
    let server = PostgresServer::start_durable();
    let mut stores: Vec<(u64, Arc<dyn Store>)> = Vec::new();
    for keys in numbers(report) {
        let table = format!("records_{keys}");
        let builder = PostgresStore::builder(server.url()).connections(CONNECTIONS).table(&table).create(true);
        let store = builder.connect().await.unwrap();
        consume_first(&store, keys).await;
        let (columns, rows) = (consumed("decode(md5(i::text),'hex')"), further(keys));
        server.psql(
            "postgres",
            &format!("INSERT INTO {table} SELECT decode(md5(i::text),'hex'),{columns} FROM generate_series(1,{rows}) AS i ORDER BY 1"),
        );
        server.psql("postgres", &format!("VACUUM ANALYZE {table}"));
        stores.push((keys, Arc::new(store)));
    }
    server.psql("postgres", "CHECKPOINT");
    claims(report, "postgres", &stores, OPERATIONS).await;
}

pub async fn mariadb(report: &Report) {
    if !wanted(report, "mariadb") {
        return;
    }
    let server = MariaDbServer::start_durable();
    let mut stores: Vec<(u64, Arc<dyn Store>)> = Vec::new();
    for keys in numbers(report) {
        let table = format!("records_{keys}");
        let builder = MySqlStore::builder(server.url()).connections(CONNECTIONS).table(&table).create(true);
        let store = builder.connect().await.unwrap();
        consume_first(&store, keys).await;
        let columns = consumed("unhex(md5(seq))");
        if let rows @ 1.. = further(keys) {
            server.sql(
                "test",
                &format!("INSERT INTO {table} SELECT unhex(md5(seq)),{columns} FROM seq_1_to_{rows} ORDER BY md5(seq)"),
            );
        }
        stores.push((keys, Arc::new(store)));
    }
    claims(report, "mariadb", &stores, OPERATIONS).await;
}

pub async fn sqlite(report: &Report) {
    if !wanted(report, "sqlite") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut stores: Vec<(u64, Arc<dyn Store>)> = Vec::new();
    for keys in numbers(report) {
        let file = folder.path().join(format!("{keys}.db"));
        let store = SqliteStore::open(file.to_str().unwrap()).await.unwrap();
        consume_first(&store, keys).await;
        let fill = format!(
            "WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM i WHERE n<{rows}), \
             ids(id) AS (SELECT randomblob(16) FROM i ORDER BY 1) INSERT INTO idempotent_record SELECT id,{columns} FROM ids",
            rows = further(keys),
            columns = consumed("id")
        );
        if further(keys) > 0 {
            let options = SqliteConnectOptions::new().filename(&file).disable_statement_logging();
            let mut connection = options.connect().await.unwrap();
            query(sqlx::AssertSqlSafe(fill)).execute(&mut connection).await.unwrap();
            query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await.unwrap();
        }
        stores.push((keys, Arc::new(store)));
    }
    claims(report, "sqlite", &stores, OPERATIONS).await;
}

//! Checks of a MariaDB server.
use idempotent_core::store::{Health, Severity};
use idempotent_harness::servers::MariaDbServer;
use idempotent_sqlx::MySqlStore;

#[path = "../server/health.rs"]
pub(super) mod shared;
use self::shared::{expect, open_by};
use super::fixture::{self, Place, sql};

#[tokio::test]
async fn a_server_whose_crash_loses_records_is_a_warning() {
    let durable = MariaDbServer::start_durable();
    let store = MySqlStore::builder(durable.url()).create(true).connect().await.unwrap();
    let report = store.check().await.unwrap();
    expect(&report, "durability", Severity::Ok, &[]);
    expect(&report, "engine", Severity::Ok, &[]);
    durable.sql("test", "SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    expect(
        &store.check().await.unwrap(),
        "durability",
        Severity::Warn,
        &["innodb_flush_log_at_trx_commit", "set it to 1"],
    );
}

#[tokio::test]
async fn a_table_without_transactions_is_refused() {
    let place = Place::new();
    let store = place.open().await;
    sql(&format!("ALTER TABLE {} ENGINE=MyISAM", place.table));
    expect(&store.check().await.unwrap(), "engine", Severity::Refuse, &["InnoDB"]);
}

#[tokio::test]
async fn sessions_of_a_pool_above_read_committed_are_a_warning() {
    let place = Place::new();
    place.open().await;
    let pool = sqlx::MySqlPool::connect(&place.url).await.unwrap();
    let report = MySqlStore::on_pool(pool).table(&place.table).connect().await.unwrap().check().await.unwrap();
    expect(&report, "isolation", Severity::Warn, &["READ COMMITTED", "after_connect"]);
}

#[tokio::test]
async fn missing_rights_are_refused_and_are_a_warning_for_a_tool_that_reads() {
    let place = Place::new();
    place.open().await;
    let (user, table) = (format!("user_{}", place.table), &place.table);
    sql(&format!("CREATE USER {user}@'127.0.0.1'"));
    for (suffix, rights) in
        [("", "SELECT, INSERT, UPDATE"), ("_steps", "ALL"), ("_lines", "ALL"), ("_migrations", "SELECT")]
    {
        sql(&format!("GRANT {rights} ON {table}{suffix} TO {user}@'127.0.0.1'"));
    }
    let report = open_by(&place, &user, false).await.check().await.unwrap();
    expect(&report, "rights", Severity::Refuse, &["DELETE on", table]);
    let report = open_by(&place, &user, true).await.check().await.unwrap();
    expect(&report, "rights", Severity::Warn, &["DELETE on"]);
}

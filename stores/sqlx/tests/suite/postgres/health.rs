//! Checks of a PostgreSQL server.
use idempotent_core::store::{Health, Severity};
use idempotent_harness::servers::{PgBouncer, PostgresServer};
use idempotent_sqlx::PostgresStore;

use crate::postgres::fixture::{Place, creating, row_tables, server, sql};
#[path = "../server/health.rs"]
pub(super) mod shared;
use self::shared::{expect, open_by};
use super::fixture;

/// Creates a role with these rights on the tables of a place, and returns its name.
fn role(place: &Place, rights: &str) -> String {
    let (role, table) = (format!("role_{}", place.table), &place.table);
    sql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT {rights} ON {table}, {table}_steps, {table}_lines TO {role}; \
         GRANT SELECT ON {table}_migrations TO {role}"
    ));
    role
}

#[tokio::test]
async fn settings_with_which_a_crash_loses_records_are_found() {
    let durable = PostgresServer::start_durable();
    let store = creating(PostgresStore::builder(durable.url())).connect().await.unwrap();
    let report = store.check().await.unwrap();
    expect(&report, "durability", Severity::Ok, &[]);
    expect(&report, "version", Severity::Ok, &[]);

    durable.psql("postgres", "CREATE ROLE hasty SUPERUSER LOGIN; ALTER ROLE hasty SET synchronous_commit = off");
    let url = durable.url().replace("postgres@", "hasty@");
    let report = PostgresStore::connect(url).await.unwrap().check().await.unwrap();
    expect(&report, "durability", Severity::Warn, &["synchronous_commit=off"]);

    durable.psql("postgres", "ALTER SYSTEM SET full_page_writes = off");
    durable.restart();
    let report = PostgresStore::connect(durable.url()).await.unwrap().check().await.unwrap();
    expect(&report, "durability", Severity::Refuse, &["full_page_writes=off"]);
}

#[tokio::test]
async fn an_isolation_above_read_committed_is_a_warning() {
    let place = Place::new();
    place.open().await;
    let role = role(&place, "ALL");
    sql(&format!("ALTER ROLE {role} SET default_transaction_isolation = 'serializable'"));
    let report = open_by(&place, &role, false).await.check().await.unwrap();
    expect(&report, "isolation", Severity::Warn, &["read committed"]);
}

#[tokio::test]
async fn missing_rights_are_refused_and_are_a_warning_for_a_tool_that_reads() {
    let place = Place::new();
    place.open().await;
    let role = role(&place, "SELECT, INSERT, UPDATE");
    let report = open_by(&place, &role, false).await.check().await.unwrap();
    expect(&report, "rights", Severity::Refuse, &["GRANT SELECT, INSERT, UPDATE, DELETE", &place.table]);
    assert_eq!(report.judge().unwrap_err().kind(), idempotent_core::StoreErrorKind::Denied);
    let report = open_by(&place, &role, true).await.check().await.unwrap();
    expect(&report, "rights", Severity::Warn, &["may only read"]);
}

#[tokio::test]
async fn an_index_on_a_changing_column_and_a_missing_primary_key_are_found() {
    let place = Place::new();
    let store = place.open().await;
    expect(&store.check().await.unwrap(), "indexes", Severity::Ok, &[]);
    sql(&format!("CREATE INDEX ON {} (first_seen)", place.table));
    expect(&store.check().await.unwrap(), "indexes", Severity::Ok, &[]);
    sql(&format!("CREATE INDEX ON {} (expires_at)", place.table));
    expect(&store.check().await.unwrap(), "indexes", Severity::Warn, &["drop it"]);
    sql(&format!("ALTER TABLE {0} DROP CONSTRAINT {0}_pkey", place.table));
    expect(&store.check().await.unwrap(), "indexes", Severity::Refuse, &["primary key"]);
}

#[tokio::test]
async fn a_pooler_that_lends_connections_is_a_warning() {
    let place = Place::new();
    let store = place.open().await;
    expect(&store.check().await.unwrap(), "pooler", Severity::Ok, &[]);
    if PgBouncer::keeps_prepared_statements() {
        let pooler = PgBouncer::start(server(), "pool_mode = transaction\n");
        let lent = PostgresStore::builder(pooler.url_of("postgres")).table(&place.table).connect().await.unwrap();
        expect(&lent.check().await.unwrap(), "pooler", Severity::Warn, &["poll every 50 ms", "direct"]);
    }
}

#[tokio::test]
async fn a_table_with_many_dead_rows_is_a_warning() {
    let place = Place::new();
    let store = place.open().await;
    expect(&store.check().await.unwrap(), "bloat", Severity::Ok, &[]);
    let table = &place.table;
    for table in row_tables(server(), table) {
        sql(&format!("ALTER TABLE {table} SET (autovacuum_enabled = off)"));
    }
    sql(&format!(
        "INSERT INTO {table} (id, v, name, state, fencing, attempt, until_at, expires_at, first_seen, updated_at) \
         SELECT sha256(n::text::bytea), 1, '', 1, 1, 1, 0, 0, 0, 0 FROM generate_series(1, 10001) AS n"
    ));
    sql(&format!("DELETE FROM {table}"));
    // The server updates its statistics after the deleting session has ended.
    let tables = row_tables(server(), table).join("','");
    let dead = format!("SELECT sum(n_dead_tup) > 10000 FROM pg_stat_all_tables WHERE relname IN ('{tables}')");
    while sql(&dead).trim() != "t" {}
    expect(&store.check().await.unwrap(), "bloat", Severity::Warn, &["autovacuum_vacuum_scale_factor"]);
}

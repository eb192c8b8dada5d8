//! The checks of a MariaDB or MySQL server, and of the store's tables in it.
use idempotent_core::store::{HealthFinding, Severity};
use idempotent_core::{StoreError, StoreErrorKind};

use super::dialect::MySqlDialect;
use crate::server::{BoundStatement, HealthQuery, ServerStore, Statement, settled};

pub(super) const MAX_CONNECTIONS: &str = "SELECT CAST(@@max_connections AS SIGNED)";

/// Returns the checks of the settings and of the tables.
pub(super) fn queries(store: &ServerStore<MySqlDialect>) -> Vec<HealthQuery> {
    // Each server skips the comment of the other.
    let isolation = "/*M!100000 @@tx_isolation */ /*!80000 @@transaction_isolation */";
    let query = HealthQuery::new::<MySqlDialect>;
    vec![
        query(
            "durability",
            "SELECT CAST(@@innodb_flush_log_at_trx_commit<>1 AS SIGNED)",
            [
                "a commit is on disk before it is answered",
                "`innodb_flush_log_at_trx_commit` is not 1: a crash of the machine loses the last second of records, whose \
                 keys then run again; set it to 1",
                "",
            ],
        ),
        query(
            "isolation",
            &format!("SELECT CAST({isolation}<>'READ-COMMITTED' AS SIGNED)"),
            [
                "READ COMMITTED",
                "sessions of this pool are above READ COMMITTED, so locks also cover the gaps between keys: set the \
                 isolation in `after_connect` of the pool",
                "",
            ],
        ),
        query(
            "engine",
            &format!(
                "SELECT CAST(coalesce(max(engine<>'InnoDB'),0)*2 AS SIGNED) FROM information_schema.tables \
                 WHERE {}",
                store.dialect.is_table
            ),
            [
                "InnoDB",
                "",
                "the table is not stored by InnoDB, so it has no transactions: `ALTER TABLE … ENGINE=InnoDB`",
            ],
        ),
    ]
}

/// Checks the permissions of the user. `EXPLAIN` needs those of its statement, and executes nothing.
pub(super) async fn findings(store: &ServerStore<MySqlDialect>) -> Result<Vec<HealthFinding>, StoreError> {
    for table in &store.dialect.tables {
        for (right, statement) in [
            ("SELECT", format!("EXPLAIN SELECT * FROM {table} WHERE id=''")),
            ("INSERT", format!("EXPLAIN INSERT INTO {table} SELECT * FROM {table} WHERE id=''")),
            ("UPDATE", format!("EXPLAIN UPDATE {table} SET id=id WHERE id=''")),
            ("DELETE", format!("EXPLAIN DELETE FROM {table} WHERE id=''")),
        ] {
            let explained = store.runner.execute(BoundStatement::new(&Statement::marks(&statement))).await;
            match explained.and_then(settled) {
                Ok(_) => {}
                Err(error) if error.kind() == StoreErrorKind::Denied => return Ok(vec![missing(store, right, table)]),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(vec![store.finding(Severity::Ok, "rights", "the user may read and write the tables")])
}

fn missing(store: &ServerStore<MySqlDialect>, right: &str, table: &str) -> HealthFinding {
    let text = format!("{right} on {table} is missing: GRANT SELECT, INSERT, UPDATE, DELETE on the store's tables");
    // A tool that only reads needs no other right.
    match store.dialect.opened_with.0.read_only && right != "SELECT" {
        true => store.finding(Severity::Warn, "rights", text),
        false => store.denied(text),
    }
}

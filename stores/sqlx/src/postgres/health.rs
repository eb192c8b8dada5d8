//! The checks of a PostgreSQL server, and of the store's tables in it.
use idempotent_core::StoreError;
use idempotent_core::store::{HealthFinding, Severity};

use super::dialect::PostgresDialect;
use crate::server::{HealthQuery, ServerStore, Statement};

pub(super) const MAX_CONNECTIONS: &str = "SELECT current_setting('max_connections')::bigint";

/// Columns that a run changes. An index on one of them makes each update of a record write to all indexes.
const CHANGED: &str = "'state','owner','fencing','attempt','until_at','taken_over','fingerprint','expires_at',\
                       'updated_at','value','error'";

/// Returns the checks of the settings and of the tables.
pub(super) fn queries(table: &str) -> Vec<HealthQuery> {
    let literal = format!("'{table}'::regclass");
    let query = HealthQuery::new::<PostgresDialect>;
    vec![
        query(
            "version",
            "SELECT CASE WHEN current_setting('server_version_num')::bigint<120000 THEN 2 ELSE 0 END::bigint",
            ["12 or later", "", "older than PostgreSQL 12: upgrade the server"],
        ),
        query(
            "durability",
            "SELECT CASE WHEN 'off' IN (current_setting('fsync'),current_setting('full_page_writes')) THEN 2 \
             WHEN current_setting('synchronous_commit')='off' THEN 1 ELSE 0 END::bigint",
            [
                "a commit is on disk before it is answered",
                "`synchronous_commit=off`: a crash of the server loses the last records, whose keys then run again; set \
                 it to `on` for this role",
                "`fsync=off` or `full_page_writes=off`: a crash of the machine destroys the database; set both to `on`",
            ],
        ),
        query(
            "isolation",
            "SELECT CASE WHEN current_setting('default_transaction_isolation')='read committed' THEN 0 ELSE 1 \
             END::bigint",
            [
                "read committed",
                "the default is above `read committed`, so concurrent claims of a key fail and are repeated: set \
                 `default_transaction_isolation` to `read committed` for this role",
                "",
            ],
        ),
        query("indexes", &indexes(&literal), INDEX_TEXTS),
        query(
            "bloat",
            &format!(
                "SELECT CASE WHEN sum(n_dead_tup)>10000 AND sum(n_dead_tup)>sum(n_live_tup)/5 THEN 1 ELSE 0 END::bigint \
                 FROM pg_stat_all_tables WHERE relid {of_table}",
                of_table = with_partitions(&literal)
            ),
            [
                "few dead rows",
                "more than a fifth of the rows are dead: lower `autovacuum_vacuum_scale_factor` of the table, and look for \
                 transactions that stay open",
                "",
            ],
        ),
    ]
}

const INDEX_TEXTS: [&str; 3] = [
    "the primary key is valid, and no other index slows the updates",
    "an index of your own contains a column that each run changes, so each update writes to all indexes: drop it",
    "the primary key is missing or invalid: recreate it, `REINDEX` the table",
];

fn indexes(table: &str) -> String {
    format!(
        "SELECT CASE WHEN count(*) FILTER (WHERE i.indrelid={table} AND i.indisprimary AND i.indisvalid)=0 THEN 2 \
         WHEN count(*) FILTER (WHERE EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid=i.indrelid \
         AND a.attnum=ANY(i.indkey) AND a.attname IN ({CHANGED})))>0 THEN 1 ELSE 0 END::bigint \
         FROM pg_index AS i WHERE i.indrelid {of_table}",
        of_table = with_partitions(table)
    )
}

/// Returns the condition for a table and its partitions.
fn with_partitions(table: &str) -> String {
    format!("IN (SELECT {table}::oid UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent={table})")
}

/// Checks the permissions of the role, and the pooler.
pub(super) async fn findings(store: &ServerStore<PostgresDialect>) -> Result<Vec<HealthFinding>, StoreError> {
    let may = |rights: &[&str]| {
        let of = |table: &str| {
            let each = rights.iter().map(|right| format!("has_table_privilege('{table}','{right}')"));
            each.collect::<Vec<_>>().join(" AND ")
        };
        let tables: Vec<_> = store.dialect.tables.iter().map(|table| of(table)).collect();
        Statement::numbered(format!("SELECT ({})::int::bigint", tables.join(" AND ")))
    };
    let tables = store.dialect.tables.join(", ");
    let (reads, writes) =
        (store.level(&may(&["SELECT"])).await?, store.level(&may(&["INSERT", "UPDATE", "DELETE"])).await?);
    let read_only = store.dialect.settings.read_only;
    let rights = match (reads, writes) {
        (1, 1) => store.finding(Severity::Ok, "rights", "the role may read and write the tables"),
        (1, _) if read_only => {
            let text = format!("the role may only read: a worker also needs INSERT, UPDATE and DELETE on {tables}");
            store.finding(Severity::Warn, "rights", text)
        }
        _ => {
            let text = format!("rights are missing: GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO the role");
            store.denied(text)
        }
    };
    let pooler = if store.dialect.is_pooled {
        store.finding(
            Severity::Warn,
            "pooler",
            "a pooler lends connections for one transaction: waiting runs poll every 50 ms; run migrations over a direct \
             connection",
        )
    } else {
        store.finding(Severity::Ok, "pooler", "no pooler lends connections for one transaction")
    };
    Ok(vec![rights, pooler])
}

//! The fixture of the server tests for PostgreSQL.
#[path = "../server/fixture.rs"]
mod shared;

use idempotent_core::StoreErrorKind;
use idempotent_harness::servers::PostgresServer;
use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row};

pub(crate) use self::shared::{Place, server, unlock};

pub(crate) type Db = sqlx::Postgres;
pub(crate) type Server = PostgresServer;
pub(crate) type Store = idempotent_sqlx::PostgresStore;
pub(crate) type Builder = idempotent_sqlx::PostgresStoreBuilder;
pub(crate) type Connection = PgConnection;

pub(crate) const NAME: &str = "PostgreSQL";
pub(crate) const SCHEME: &str = "postgres";
const ADMIN: &str = "postgres";
const PARAMETER: &str = "$1";
pub(crate) const NO_TABLE: &str = "42P01";
pub(crate) const NO_SCHEMA: (StoreErrorKind, &[&str]) = (StoreErrorKind::Schema, &["schema", "3F000"]);
const LOCK: &str = "BEGIN; LOCK TABLE TABLE_NAME IN ACCESS EXCLUSIVE MODE";
const UNLOCK: &str = "ROLLBACK";
const OTHER_LAYOUT: &str = "ALTER taken_over SET NOT NULL";
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query";
/// Every column as text.
const ROW_TEXT: &str = "r::text";

/// The variable with the number of hash partitions of all tables. `cargo xtask test extras` sets it for a second run.
const PARTITIONS: &str = "IDEMPOTENT_POSTGRES_PARTITIONS";

/// Returns the number of partitions that this run of the tests gives to all tables.
pub(crate) fn partitions() -> Option<u16> {
    let number = std::env::var(PARTITIONS).ok()?;
    Some(number.parse().unwrap_or_else(|_| panic!("{PARTITIONS}={number} is no number of partitions")))
}

/// Returns the builder of a store that creates its tables.
pub(crate) fn creating(builder: Builder) -> Builder {
    let builder = builder.create(true);
    match partitions() {
        Some(number) => builder.partitions(number),
        None => builder,
    }
}

/// Returns the names of the tables that contain the rows of a table: its partitions, or the table itself.
pub(crate) fn row_tables(server: &Server, table: &str) -> Vec<String> {
    let names = format!(
        "SELECT coalesce(i.inhrelid, c.oid)::regclass FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhparent = c.oid \
         WHERE c.oid = '{table}'::regclass"
    );
    server.psql("postgres", &names).lines().map(str::to_owned).collect()
}

/// Returns the URL of a user whose writes a read-only server refuses.
pub(crate) fn admit(server: &Server) -> String {
    server.url()
}

/// Makes the server refuse writes, also on open connections once they notice.
pub(crate) fn demote(server: &Server) {
    server.psql("postgres", "ALTER SYSTEM SET default_transaction_read_only = on");
    server.psql("postgres", "SELECT pg_reload_conf()");
}

pub(crate) fn sql(text: &str) -> String {
    server().psql("postgres", text)
}

/// Claims and looks that this connection has sent so far.
pub(crate) async fn sent(connection: &mut PgConnection, place: &Place) -> (i64, i64) {
    let count = |like: &str| {
        format!(
            "(SELECT coalesce(sum(generic_plans + custom_plans), 0)::bigint FROM pg_prepared_statements \
             WHERE statement LIKE '{like}' AND statement LIKE '%{}%')",
            place.table
        )
    };
    let both = format!("SELECT {}, {}", count("WITH cur AS%"), count("SELECT id,v,%"));
    let row = sqlx::raw_sql(AssertSqlSafe(both)).fetch_one(connection).await.unwrap();
    (row.get(0), row.get(1))
}

/// Stores of every kind of statements.
pub(crate) fn builders(place: &Place) -> Vec<Builder> {
    vec![place.builder()]
}

impl Place {
    /// Goes into its locks and its channel.
    pub(crate) fn salt(&self) -> u64 {
        let digest = Sha256::digest(format!("\"public\".\"{}\"", self.table));
        u64::from_be_bytes(digest[..8].try_into().unwrap())
    }

    pub(crate) fn has(&self, table: &str) -> bool {
        sql(&format!("SELECT to_regclass('{table}') IS NOT NULL")) == "t"
    }

    /// Makes the server report a full disk for each write of a row `NEW` that meets a condition, or ends this. A full tablespace
    /// has the same code.
    pub(crate) fn fill_disk(&self, full_for: Option<&str>) {
        let table = &self.table;
        sql(&match full_for {
            Some(condition) => format!(
                "CREATE FUNCTION full_{table}() RETURNS trigger LANGUAGE plpgsql AS \
                 $$BEGIN IF {condition} THEN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END IF; RETURN NEW; END$$; \
                 CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION full_{table}()"
            ),
            None => format!("DROP TRIGGER no_room ON {table}; DROP FUNCTION full_{table}()"),
        });
    }
}

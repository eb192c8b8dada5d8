//! The fixture of the server tests for MariaDB and MySQL.
#[path = "../server/fixture.rs"]
mod shared;

use idempotent_core::StoreErrorKind;
use idempotent_harness::servers::MariaDbServer;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

pub(crate) use self::shared::{Place, server, unlock};

pub(crate) type Db = sqlx::MySql;
pub(crate) type Server = MariaDbServer;
pub(crate) type Store = idempotent_sqlx::MySqlStore;
pub(crate) type Builder = idempotent_sqlx::MySqlStoreBuilder;
pub(crate) type Connection = MySqlConnection;

pub(crate) const NAME: &str = "MariaDB or MySQL";
pub(crate) const SCHEME: &str = "mysql";
const ADMIN: &str = "root";
const PARAMETER: &str = "?";
pub(crate) const NO_TABLE: &str = "error 1146";
pub(crate) const NO_SCHEMA: (StoreErrorKind, &[&str]) =
    (StoreErrorKind::Denied, &["the database does not exist", "error 1049"]);
const LOCK: &str = "LOCK TABLES TABLE_NAME WRITE";
const UNLOCK: &str = "UNLOCK TABLES";
const OTHER_LAYOUT: &str = "DROP COLUMN taken_over";
/// Counts statements under way. Not by `innodb_trx`, which is not refreshed as long as it is asked often; and on MySQL not by
/// `information_schema`, which fails on statements with binary text.
const WAITING: &str = "SELECT count(*) FROM /*M!100000 information_schema.processlist */ \
    /*!80022 performance_schema.processlist */ WHERE id <> connection_id() AND info";
/// Every column as text.
const ROW_TEXT: &str = "concat_ws('|',quote(hex(v)),quote(hex(name)),quote(hex(state)),quote(hex(owner)),quote(hex(fencing)),\
    quote(hex(attempt)),quote(hex(until_at)),quote(hex(taken_over)),quote(hex(fingerprint)),\
    quote(hex(expires_at)),quote(hex(first_seen)),quote(hex(updated_at)),quote(hex(value)),\
    quote(hex(error)),quote(hex(display)))";

/// Returns the builder of a store that creates its tables.
pub(crate) fn creating(builder: Builder) -> Builder {
    builder.create(true)
}

/// Creates a user whose writes a read-only server refuses. Returns the user's URL.
pub(crate) fn admit(server: &Server) -> String {
    server.sql(
        "mysql",
        "DROP USER IF EXISTS app@'127.0.0.1'; CREATE USER app@'127.0.0.1'; GRANT ALL ON test.* TO app@'127.0.0.1'",
    );
    server.url().replace("root@", "app@")
}

/// Makes the server refuse writes, also on open connections.
pub(crate) fn demote(server: &Server) {
    server.sql("mysql", "SET GLOBAL read_only = 1");
}

pub(crate) fn sql(text: &str) -> String {
    server().sql("test", text)
}

/// Claims and looks that this connection has sent so far.
pub(crate) async fn sent(connection: &mut MySqlConnection, _: &Place) -> (i64, i64) {
    let count = async |connection: &mut MySqlConnection, name: &str| -> i64 {
        let status = format!("SHOW SESSION STATUS LIKE '{name}'");
        let row = sqlx::raw_sql(AssertSqlSafe(status)).fetch_one(connection).await.unwrap();
        row.get::<String, _>(1).parse().unwrap()
    };
    let (claims, looks) = (count(connection, "Com_insert").await, count(connection, "Com_select").await);
    // MySQL cannot return what a statement has inserted: a read belongs to the claim.
    let of_mysql = count(connection, "Com_insert_select").await;
    (claims + of_mysql, looks - of_mysql)
}

/// Stores of every kind of statements, with a table of its own for the second one.
pub(crate) fn builders(place: &Place) -> Vec<Builder> {
    vec![place.builder(), Place::new().builder().__as_on_mysql()]
}

impl Place {
    pub(crate) fn has(&self, table: &str) -> bool {
        !sql(&format!("SHOW TABLES LIKE '{table}'")).is_empty()
    }

    /// Makes the server report a full disk for each write of a row `NEW` that meets a condition, or ends this. A full tablespace
    /// has the same number.
    pub(crate) fn fill_disk(&self, full_for: Option<&str>) {
        let table = &self.table;
        for verb in ["INSERT", "UPDATE"] {
            let name = format!("full_{verb}_{table}");
            sql(&match full_for {
                Some(condition) => format!(
                    "DELIMITER //\n CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW IF {condition} THEN \
                     SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'no space'; END IF//"
                ),
                None => format!("DROP TRIGGER {name}"),
            });
        }
    }
}

//! Statements of the inbox on MariaDB and MySQL.
//!
//! The row is the lock: the claim inserts or overwrites the row, and another claim of the key fails at once. The
//! failure undoes only its own statement, and its transaction continues.
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor};

use super::error;
use super::sql::{StatementBuilder, columns};
use crate::server::{RunTexts, Statement, TransactionStatements, completed, guard};

/// The settings of a session that change what later statements do or see. MariaDB and MySQL have different names for two of them,
/// and each skips the comment of the other.
const SESSION: &str = "concat_ws('|',coalesce(database(),''),@@autocommit,@@sql_mode,@@time_zone,@@foreign_key_checks,\
    @@unique_checks,@@innodb_lock_wait_timeout,@@lock_wait_timeout,@@sql_safe_updates,@@completion_type,\
    @@character_set_client,@@character_set_results,@@collation_connection,coalesce(current_role(),''),\
    /*M!100000 @@tx_isolation,@@tx_read_only */ /*!80000 @@transaction_isolation,@@transaction_read_only */)";
/// The column with 1 if the settings are the same.
pub(super) const SAME: &str = "idempotent_same";

/// Returns the statements about the transactions of runs. The mark is a savepoint, which ends with its transaction.
pub(super) fn run_texts(mark: &str) -> RunTexts {
    let (set, proved) = (format!("SAVEPOINT idempotent_{mark}"), format!("RELEASE SAVEPOINT idempotent_{mark}"));
    // A handler may have set its clock, on which the times of records depend.
    let proved = format!("{proved}; SET timestamp=DEFAULT");
    let is_same = format!("SELECT @idempotent_session<=>{SESSION} AS {SAME}, release_all_locks()");
    RunTexts {
        begin: format!("BEGIN; {set}; SET @idempotent_session={SESSION}"),
        stands: format!("{proved}; {set}; {is_same}"),
        commit: "COMMIT".to_owned(),
        roll_back: format!("SHOW ERRORS; {proved}; ROLLBACK; {is_same}"),
        recover: "ROLLBACK; SELECT release_all_locks()".to_owned(),
        is_same,
        end_connection: "KILL CONNECTION connection_id()".to_owned(),
    }
}

/// Marks a transaction of the caller as that of a claim of this owner.
pub(super) async fn mark_claim(connection: &mut MySqlConnection, owner: &str) -> Result<(), sqlx::Error> {
    connection.execute(AssertSqlSafe(format!("SAVEPOINT idempotent_{owner}"))).await.map(drop)
}

/// Returns true if this is the transaction of [`mark_claim`].
pub(super) async fn is_marked(connection: &mut MySqlConnection, owner: &str) -> Result<bool, sqlx::Error> {
    match connection.execute(AssertSqlSafe(format!("RELEASE SAVEPOINT idempotent_{owner}"))).await {
        Ok(_) => Ok(true),
        Err(error) if error.as_database_error().and_then(error::proof).is_some() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates the statements by a builder whose statements do not wait. With a custom clock, the time is the last
/// parameter.
pub(super) fn statements(maker: &StatementBuilder) -> TransactionStatements {
    TransactionStatements {
        claim: maker.claim_all(1),
        look: Statement::marks(&look(maker)),
        put: Statement::marks(&maker.put()),
        complete: Statement::marks(&maker.writing(&complete(maker))),
    }
}

/// Returns the statement that releases the lock. $1 the hash of the key
pub(super) fn free(maker: &StatementBuilder) -> Statement {
    Statement::marks(&format!("SELECT id FROM {} WHERE id=$1 FOR UPDATE NOWAIT", maker.table))
}

/// Returns a locking read, which sees committed rows even in a transaction with an older snapshot. The lock is shared,
/// so duplicates do not block each other; MySQL and MariaDB have different syntax.
fn look(maker: &StatementBuilder) -> String {
    let (table, columns, now) = (&maker.table, columns(), maker.now(2));
    let lock = if maker.returning() { "LOCK IN SHARE MODE NOWAIT" } else { "FOR UPDATE NOWAIT" };
    maker.writing(&format!("SELECT {columns},{now},0 FROM {table} WHERE id=$1 {lock}"))
}

fn complete(maker: &StatementBuilder) -> String {
    let (table, now) = (&maker.table, maker.now(8));
    let (guard, set) = (guard(&now, "$1", "$2", "$3"), completed(&now, "$4", "$5"));
    format!("UPDATE {table} AS r SET {set} WHERE {guard} AND (r.value IS NULL OR $7=1)")
}

/// Returns the statement that completes a claim of this transaction. The second part fails if the first one found no row: the
/// exponential function of 710 is out of range.
pub(super) fn completing(maker: &StatementBuilder, [id, owner]: [String; 2], set: &str) -> String {
    let table = &maker.table;
    format!("UPDATE {table} SET {set} WHERE id={id} AND owner={owner} AND state=1; SELECT exp(710*(1-row_count()))")
}

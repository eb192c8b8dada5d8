//! Statements of the inbox on MariaDB and MySQL.
//!
//! The row is the lock: the claim inserts or overwrites the row, and another claim of the key fails at once. The
//! failure undoes only its own statement, and its transaction continues.
use sqlx::mysql::{MySql, MySqlConnection};
use sqlx::{AssertSqlSafe, Executor, Transaction};

use super::sql::{StatementBuilder, columns};
use crate::inbox::FinalWrite;
use crate::row::VERSION;
use crate::server::{Statement, TransactionStatements, completed, guard_inside, plus};

/// The statements that begin a run, and the savepoint that identifies the transaction later.
pub(super) const BEGIN: &str = "BEGIN; SAVEPOINT idempotent_run";
const STANDS: &str = "RELEASE SAVEPOINT idempotent_run";

/// Creates the statements by a builder whose statements do not wait. With a custom clock, the time is the last
/// parameter.
pub(super) fn statements(maker: &StatementBuilder) -> TransactionStatements {
    TransactionStatements {
        claim: Statement::marks(&maker.writing(&claim(maker))),
        look: Statement::marks(&look(maker)),
        put: Statement::marks(&maker.put()),
        complete: Statement::marks(&maker.writing(&complete(maker))),
    }
}

/// Returns the statement that releases the lock. $1 the hash of the key
pub(super) fn free(maker: &StatementBuilder) -> Statement {
    Statement::marks(&format!("SELECT id FROM {} WHERE id=$1 FOR UPDATE NOWAIT", maker.table))
}

/// Returns the store's claim with a record that is consumed at once.
fn claim(maker: &StatementBuilder) -> String {
    let (table, columns, now) = (&maker.table, columns(), maker.now(7));
    let expires = plus(&now, "$3");
    let returning = if maker.returning() { format!(" RETURNING {columns},{now},1") } else { String::new() };
    format!(
        "INSERT IGNORE INTO {table} ({columns}) \
         VALUES ($1,{VERSION},$5,2,$2,{now},1,{now},NULL,$4,{expires},{now},{now},NULL,NULL,NULL){returning}"
    )
}

/// Returns a locking read, which sees committed rows even in a transaction with an older snapshot. The lock is shared,
/// so duplicates do not block each other; MySQL and MariaDB have different syntax.
fn look(maker: &StatementBuilder) -> String {
    let (table, columns, now) = (&maker.table, columns(), maker.now(2));
    let lock = if maker.returning() { "LOCK IN SHARE MODE NOWAIT" } else { "FOR UPDATE NOWAIT" };
    format!("SELECT {columns},{now},0 FROM {table} WHERE id=$1 {lock}")
}

fn complete(maker: &StatementBuilder) -> String {
    let (table, now) = (&maker.table, maker.now(7));
    let (guard, set) = (guard_inside(&now), completed(&now, "$4", "$5"));
    format!("UPDATE {table} AS r SET {set} WHERE {guard}")
}

/// Fails without the savepoint.
pub(super) async fn stands(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    connection.execute(STANDS).await.map(drop)
}

/// Returns the statement that sets the value. The row exists while its transaction is open.
pub(super) fn valued(maker: &StatementBuilder, [id, owner, value]: [String; 3], now: &str, expires: &str) -> String {
    let table = &maker.table;
    format!(
        "UPDATE {table} SET value={value}, expires_at={expires}, updated_at={now} WHERE id={id} AND owner={owner} AND state=2"
    )
}

pub(super) async fn commit(mut transaction: Transaction<'static, MySql>, last: FinalWrite) -> Result<(), sqlx::Error> {
    // One round trip; the guard's ROLLBACK then has no effect.
    let text = match last {
        FinalWrite::Written => return transaction.commit().await,
        FinalWrite::AsClaimed => format!("{STANDS}; COMMIT"),
        FinalWrite::With(statement) => format!("{STANDS}; {statement}; COMMIT"),
    };
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *transaction).await.map(drop)
}

//! Statements of the inbox on PostgreSQL.
//!
//! The claim holds the advisory lock of the key until the end of the transaction, as does the completion of a lease.
//! Another claim of the key fails at once because the lock is taken. Without the lock, the other claim would wait for
//! the locked row.
use sqlx::{AssertSqlSafe, Postgres, Transaction};

use super::sql::{StatementBuilder, columns};
use crate::inbox::FinalWrite;
use crate::row::VERSION;
use crate::server::{Statement, Statements, TransactionStatements, completed, guard_inside, plus};

/// Creates the statements. With a custom clock, the time is the last parameter.
pub(super) fn statements(maker: &StatementBuilder, texts: &Statements) -> TransactionStatements {
    TransactionStatements {
        claim: Statement::numbered(claim(maker)),
        look: texts.look.clone(),
        put: texts.put.clone(),
        complete: Statement::numbered(complete(maker)),
    }
}

/// Returns the statement that releases the lock. $1 the lock of the key
pub(super) fn free() -> Statement {
    Statement::numbered("SELECT pg_try_advisory_xact_lock($1)::int::bigint".to_owned())
}

/// Returns the store's claim with a record that is consumed at once.
fn claim(maker: &StatementBuilder) -> String {
    let (table, columns, now) = (&maker.table, columns(), maker.now(7));
    let expires = plus("n", "$3");
    format!(
        "WITH cur AS MATERIALIZED (SELECT {columns} FROM {table} WHERE id=$1), \
         k AS MATERIALIZED (SELECT CASE WHEN NOT EXISTS (SELECT FROM cur) THEN \
         CASE WHEN pg_try_advisory_xact_lock($6) THEN {now} END END AS n), \
         ins AS (INSERT INTO {table} ({columns}) \
         SELECT $1,{VERSION},$5,2,$2,n,1,n,NULL,$4,{expires},n,n,NULL,NULL,NULL \
         FROM k WHERE n IS NOT NULL ON CONFLICT (id) DO NOTHING RETURNING {columns}) \
         SELECT {columns},{now},1::bigint FROM ins UNION ALL SELECT {columns},{now},0::bigint FROM cur"
    )
}

/// Returns whether the lock of the key was free, and whether the row was written.
fn complete(maker: &StatementBuilder) -> String {
    let (table, tell, now) = (&maker.table, &maker.tell, maker.now(7));
    let (guard, set) = (guard_inside("t.n"), completed("t.n", "$4", "$5"));
    format!(
        "WITH lk AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($6) AS ok), \
         up AS (UPDATE {table} AS r SET {set} FROM (SELECT {now} AS n) AS t, lk WHERE lk.ok AND {guard} RETURNING {tell}) \
         SELECT (SELECT ok::int FROM lk)::bigint, (SELECT count(*) FROM up)"
    )
}

/// Fails where nothing is written: by a division that the server cannot make before it has counted.
pub(super) fn valued(table: &str, tell: &str, [id, owner, value]: [String; 3], now: &str, expires: &str) -> String {
    format!(
        "WITH up AS (UPDATE {table} AS r SET value={value}, expires_at={expires}, updated_at={now} \
         WHERE r.id={id} AND r.owner={owner} AND r.state=2 RETURNING {tell}) SELECT 1/count(*) FROM up"
    )
}

pub(super) async fn commit(
    mut transaction: Transaction<'static, Postgres>,
    last: FinalWrite,
) -> Result<(), sqlx::Error> {
    // A transaction in which a statement has failed is rolled back by COMMIT, without an error: so there has to be a
    // statement before it, which fails then. CHAIN leaves an empty one for the guard to end, as it goes back to the pool;
    // without it the server would warn of a ROLLBACK too many.
    let text = match last {
        FinalWrite::Written => return transaction.commit().await,
        FinalWrite::AsClaimed => "SELECT 1; COMMIT AND CHAIN".to_owned(),
        FinalWrite::With(statement) => format!("{statement}; COMMIT AND CHAIN"),
    };
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *transaction).await.map(drop)
}

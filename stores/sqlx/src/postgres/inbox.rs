//! Statements of the inbox on PostgreSQL.
//!
//! The claim holds the advisory lock of the key until the end of the transaction, as does the completion of a lease.
//! Another claim of the key fails at once because the lock is taken. Without the lock, the other claim would wait for
//! the locked row.
use sqlx::error::DatabaseError;

use super::sql::StatementBuilder;
use crate::server::{FailedProof, RunTexts, Statement, Statements, TransactionStatements, completed, guard};

/// The settings of a session that change what later statements do or see.
const SESSION: &str = "concat_ws('|',current_user,session_user,current_setting('search_path'),\
    current_setting('default_transaction_isolation'),current_setting('default_transaction_read_only'),\
    current_setting('default_transaction_deferrable'),current_setting('session_replication_role'),\
    current_setting('row_security'),current_setting('statement_timeout'),current_setting('lock_timeout'),\
    current_setting('idle_in_transaction_session_timeout'),current_setting('synchronous_commit'),\
    current_setting('TimeZone'),current_setting('DateStyle'))";
/// The column with 1 if the settings are the same.
pub(super) const SAME: &str = "idempotent_same";
/// The number of the transaction, which marks the records that it claims.
const TRANSACTION: &str = "convert_to(txid_current()::text,'UTF8')";
/// The beginnings of the values that fail to be numbers. The server's log shows them.
const ENDED: &str = "idempotent: a statement of the handler has ended the transaction of its run";
const NO_RECORD: &str = "idempotent: the record of the run is not there any more";

/// Creates the statements. With a custom clock, the time is the last parameter.
pub(super) fn statements(maker: &StatementBuilder, texts: &Statements) -> TransactionStatements {
    TransactionStatements {
        claim: Statement::numbered(maker.claim(TRANSACTION)),
        look: texts.look.clone(),
        put: Statement::numbered(maker.put(TRANSACTION)),
        complete: Statement::numbered(complete(maker)),
    }
}

/// Returns the statement that asks whether no transaction holds the key. The lock is shared, since another caller that asks at the
/// same moment holds nothing. $1 the lock of the key
pub(super) fn free() -> Statement {
    Statement::numbered("SELECT pg_try_advisory_xact_lock_shared($1)::int::bigint".to_owned())
}

/// Returns whether the lock of the key was free, and whether the row was written.
fn complete(maker: &StatementBuilder) -> String {
    let (table, tell, now) = (&maker.table, &maker.tell, maker.now(8));
    let (guard, set) = (guard("t.n", "$1", "$2", "$3"), completed("t.n", "$4", "$5"));
    format!(
        "WITH lk AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($6) AS ok), \
         up AS (UPDATE {table} AS r SET {set} FROM (SELECT {now} AS n) AS t, lk WHERE lk.ok AND {guard} \
         AND (r.value IS NULL OR $7::bigint=1 OR r.value={TRANSACTION}) RETURNING {tell}) \
         SELECT (SELECT ok::int FROM lk)::bigint, (SELECT count(*) FROM up)"
    )
}

/// Returns the statement that completes a claim of this transaction, and fails if it changes no row. The error has
/// [`NO_RECORD`] as its text.
pub(super) fn completing(table: &str, tell: &str, [id, owner]: [String; 2], set: &str) -> String {
    format!(
        "WITH up AS (UPDATE {table} AS r SET {set} WHERE r.id={id} AND r.owner={owner} AND r.state=1 RETURNING {tell}) \
         SELECT CASE (SELECT count(*) FROM up) WHEN 1 THEN 1 ELSE ('{NO_RECORD}' || (SELECT count(*) FROM up))::int END"
    )
}

/// Returns the statements about the transactions of runs. The mark is a setting that ends with its transaction.
///
/// A transaction in which a statement has failed is rolled back by COMMIT, without an error: so there has to be a statement before
/// it, which fails then. CHAIN leaves an empty one for the guard to end, as it goes back to the pool; without it the server would
/// warn of a ROLLBACK too many.
pub(super) fn run_texts(mark: &str) -> RunTexts {
    let is_same =
        format!("(current_setting('idempotent.session',true)={SESSION})::int AS {SAME}, pg_advisory_unlock_all()");
    let stands = format!(
        "SELECT CASE current_setting('idempotent.run',true) WHEN '{mark}' THEN 1 \
         ELSE ('{ENDED}' || coalesce(current_setting('idempotent.run',true),''))::int END, {is_same}"
    );
    RunTexts {
        begin: format!(
            "BEGIN; SELECT set_config('idempotent.run','{mark}',true), set_config('idempotent.session',{SESSION},false)"
        ),
        commit: "COMMIT AND CHAIN".to_owned(),
        roll_back: format!("{stands}; ROLLBACK AND CHAIN"),
        stands,
        recover: "ROLLBACK AND CHAIN; SELECT pg_advisory_unlock_all()".to_owned(),
        is_same: format!("SELECT {is_same}"),
        end_connection: "ROLLBACK; SELECT pg_terminate_backend(pg_backend_pid())".to_owned(),
    }
}

/// Returns the meaning of an error of a statement at the end of a run for its transaction.
pub(super) fn proof(error: &dyn DatabaseError) -> Option<FailedProof> {
    let is = |text| error.code().as_deref() == Some("22P02") && error.message().contains(text);
    match () {
        () if is(ENDED) => Some(FailedProof::Ended),
        () if is(NO_RECORD) => Some(FailedProof::NoRecord),
        () => None,
    }
}

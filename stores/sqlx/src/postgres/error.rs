//! Error kinds and texts for the SQLSTATE codes of PostgreSQL.
use idempotent_core::StoreErrorKind;
use sqlx::error::DatabaseError;

use crate::server::Refusal;

/// Returns true if the server ended the connection.
pub(super) fn ends_connection(error: &dyn DatabaseError) -> bool {
    let state = error.code().unwrap_or_default();
    // 25P03 and 25P04: timeouts that end the session, not only its transaction.
    ["08", "57P", "25P03", "25P04"].iter().any(|gone| state.starts_with(gone))
}

/// Returns true if the session takes no writes: its server is a standby or a demoted primary, or a setting of the session forbids them.
pub(super) fn is_read_only(error: &dyn DatabaseError) -> bool {
    error.code().as_deref() == Some(READ_ONLY)
}

const READ_ONLY: &str = "25006";

/// Returns true if the disk had no room for the statement.
pub(super) fn is_full(error: &dyn DatabaseError) -> bool {
    error.code().as_deref() == Some("53100")
}

/// Interprets an error of the server. A failed statement is rolled back, as each statement is a transaction of its own.
///
/// The result contains only the message of the server, as the details may show whole rows.
pub(super) fn refusal(error: &dyn DatabaseError) -> Refusal {
    use StoreErrorKind::{Ambiguous, Corrupt, Denied, Foreign, NotApplied, Schema};
    let state = error.code().unwrap_or_default();
    let (kind, text) = match state.as_ref() {
        "42P01" => (Schema, "table `{table}` is missing in {database}: open it once with `create(true)`"),
        "3F000" => {
            (Schema, "the schema of table `{table}` is missing in {database}: create it, or set another `schema`")
        }
        "42703" | "42804" | "42883" | "22P02" | "23502" | "42P10" => (
            Foreign,
            "table `{table}` in {database} has a different layout than this version creates: set another `table`, or \
             rename the existing one",
        ),
        "3D000" => (Denied, "{database}: the database does not exist: create it, or name another one in the URL"),
        "28P01" => (Denied, "{database}: user or password rejected: check both in the URL"),
        "28000" => (
            Denied,
            "{database}: the user does not exist, or a rule of pg_hba.conf refuses the login: check the user and `sslmode` in \
             the URL",
        ),
        "42501" => (
            Denied,
            "{database}: missing privileges: GRANT SELECT, INSERT, UPDATE, DELETE on `{table}` and the tables whose names begin \
             with it, and CREATE on the schema for `create(true)`",
        ),
        READ_ONLY => (NotApplied, "{database} is read-only, probably a standby: name the primary in the URL"),
        "53300" => (
            NotApplied,
            "{database}: the server's connection limit is reached: raise max_connections, or lower `connections` (now \
             {connections})",
        ),
        "53100" | "53200" | "53400" => (NotApplied, "{database}: the server is out of disk space or memory: free some"),
        "57P03" => (NotApplied, "{database} is starting, stopping or recovering"),
        "57014" => (
            NotApplied,
            "{database}: statement cancelled after statement_timeout: raise that timeout, or find the cause of the delay",
        ),
        "40001" | "40P01" | "55P03" => (NotApplied, "{database}: lock conflict with another transaction; retry"),
        "54000" => (Denied, "{database}: value exceeds PostgreSQL's limit of 1 GB: store a smaller result"),
        "XX001" | "XX002" => (Corrupt, "{database} reports damaged files: restore a backup"),
        // The connection ended, possibly during the commit.
        "57P01" | "57P02" => (Ambiguous, "{database} ended the connection"),
        "25P03" => (
            Ambiguous,
            "{database} ended the connection after idle_in_transaction_session_timeout: raise that timeout, or shorten the \
             transaction",
        ),
        "25P04" => (
            Ambiguous,
            "{database} ended the connection after transaction_timeout: raise that timeout, or shorten the transaction",
        ),
        "57P05" => (Ambiguous, "{database} ended the connection after idle_session_timeout"),
        "08P01" if error.message().starts_with("unsupported startup parameter: extra_float_digits") => (
            Denied,
            "{database}: a pooler refuses a parameter that sqlx sends: set `PgConnectOptions::extra_float_digits(None)`, or \
             `ignore_startup_parameters=extra_float_digits` of PgBouncer",
        ),
        "08P01" if error.message().starts_with("unsupported startup parameter") => (
            Denied,
            "{database}: a pooler refuses a setting of the connection: set it by ALTER ROLE, or connect to the server directly",
        ),
        _ if state.starts_with("08") => (Ambiguous, "the connection to {database} failed"),
        _ => (NotApplied, "{database} refused the {request}"),
    };
    Refusal { kind, text: format!("{text} (SQLSTATE {state})"), words: error.message().to_owned() }
}

//! What an error of PostgreSQL lets a caller conclude.
use idempotent_core::StoreErrorKind;
use sqlx::error::DatabaseError;

use crate::server::Refusal;

/// The server says what happened: a statement that failed was rolled back, being a transaction of its own.
///
/// Of its own words only the message is kept: its details show whole rows.
pub(super) fn refusal(error: &dyn DatabaseError) -> Refusal {
    use StoreErrorKind::{Ambiguous, Corrupt, Denied, Foreign, NotApplied, Schema};
    let state = error.code().unwrap_or_default();
    let (kind, text) = match state.as_ref() {
        "42P01" => (Schema, "table `{table}` is missing in {database}: open it once with `create(true)`"),
        "3F000" => (Schema, "the schema of table `{table}` is missing in {database}: make it, or name another"),
        "42703" | "42804" | "42883" | "22P02" | "23502" | "42P10" => (
            Foreign,
            "table `{table}` in {database} has not the layout this version makes: set another `table`, or move that one away",
        ),
        "3D000" => (Denied, "{database}: there is no such database: make it, or name another in the URL"),
        "28000" | "28P01" => (Denied, "{database} refuses this user or password: check those of the URL"),
        "42501" => {
            (Denied, "{database}: this user may not use table `{table}`: GRANT SELECT, INSERT, UPDATE, DELETE on it")
        }
        "25006" => (NotApplied, "{database} is read-only, as a standby is: name the primary in the URL"),
        "53300" => (
            NotApplied,
            "{database} has no connection left: raise max_connections there, or use fewer than {connections} here",
        ),
        "53100" | "53200" | "53400" => (NotApplied, "{database} is out of disk or memory: make room"),
        "57P03" => (NotApplied, "{database} is starting, stopping or recovering"),
        "57014" => (NotApplied, "{database} cancelled the statement: it took longer than statement_timeout"),
        "40001" | "40P01" | "55P03" => (NotApplied, "{database}: others were in the way; try again"),
        "54000" => (Denied, "{database}: a value is larger than PostgreSQL takes (1 GB): keep a smaller result"),
        "XX001" | "XX002" => (Corrupt, "{database} says that its files are damaged: restore a backup"),
        // Its connection was ended, perhaps in the middle of the commit.
        "57P01" | "57P02" | "57P05" => (Ambiguous, "{database} ended the connection"),
        _ if state.starts_with("08") => (Ambiguous, "the connection to {database} failed"),
        _ => (NotApplied, "{database} refused the statement"),
    };
    Refusal { kind, text: format!("{text} (SQLSTATE {state})"), words: error.message().to_owned() }
}

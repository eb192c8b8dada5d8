//! What an error of MariaDB or MySQL lets a caller conclude.
use idempotent_core::StoreErrorKind;
use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;

use crate::server::{Contention, Refusal};

/// Its own number; 0 where it has none.
fn number(error: &dyn DatabaseError) -> u16 {
    error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number)
}

/// Others were in the way, and the statement was rolled back.
pub(super) fn contention(error: &dyn DatabaseError) -> Option<Contention> {
    match number(error) {
        1213 | 1020 => Some(Contention::Raced),
        1205 | 3572 => Some(Contention::Locked),
        _ => None,
    }
}

/// The server says what happened: a statement that failed was rolled back, being a transaction of its own.
pub(super) fn refusal(error: &dyn DatabaseError) -> Refusal {
    use StoreErrorKind::{Ambiguous, Corrupt, Denied, Foreign, NotApplied, Schema};
    let number = number(error);
    let (kind, text) = match number {
        1146 => (Schema, "table `{table}` is missing in {database}: open it once with `create(true)`"),
        1048 | 1054 | 1136 | 1264 | 1265 | 1292 | 1364 | 1366 | 1406 => (
            Foreign,
            "table `{table}` in {database} has not the layout this version makes: set another `table`, or move that one away",
        ),
        1049 => (Denied, "{database}: there is no such database: make it, or name another in the URL"),
        // MariaDB says no more where it takes TLS only.
        1045 | 1251 | 1698 => (
            Denied,
            "{database} refuses this user or password, or takes TLS only: check those of the URL, and its `ssl-mode`",
        ),
        3159 => (Denied, "{database} takes TLS only: ask for it in the URL, by `ssl-mode`"),
        1044 => (
            Denied,
            "{database}: this user may not use the database: GRANT SELECT, INSERT, UPDATE, DELETE on its tables",
        ),
        1142 | 1143 | 1227 => {
            (Denied, "{database}: this user may not use table `{table}`: GRANT SELECT, INSERT, UPDATE, DELETE on it")
        }
        1290 | 1792 | 1836 => (NotApplied, "{database} is read-only, as a replica is: name the primary in the URL"),
        1040 | 1203 | 1226 => (
            NotApplied,
            "{database} has no connection left: raise max_connections there, or use fewer than {connections} here",
        ),
        1021 | 1037 | 1038 | 1041 | 1114 => (NotApplied, "{database} is out of disk or memory: make room"),
        1317 | 1969 | 3024 => (NotApplied, "{database} cancelled the statement: it was killed, or took too long"),
        1020 | 1205 | 1213 | 3572 => (NotApplied, "{database}: others were in the way; try again"),
        1153 => (Denied, "{database}: a value is larger than max_allowed_packet: raise that, or keep a smaller result"),
        1665 => (
            Denied,
            "{database} keeps its log by statements, which READ COMMITTED does not allow: set binlog_format to ROW or MIXED",
        ),
        1034 | 1035 | 1194 | 1195 | 1712 | 1877 => {
            (Corrupt, "{database} says that its files are damaged: restore a backup")
        }
        // Its connection was ended, perhaps in the middle of the commit.
        1053 | 1077 | 1079 | 1080 | 1152 | 1158..=1161 | 1184 | 1927 => (Ambiguous, "{database} ended the connection"),
        1180 => (Ambiguous, "{database} had an error in the middle of a commit"),
        // Of the savepoint that a run of ours begins with.
        1305 => (
            NotApplied,
            "{database} ended the transaction before its run: a statement in it failed, or commits by itself",
        ),
        _ => (NotApplied, "{database} refused the statement"),
    };
    // These say what the value was.
    let words = match number {
        1062 | 1264 | 1265 | 1292 | 1366 | 1406 => "its words hold a value",
        _ => error.message(),
    };
    Refusal { kind, text: format!("{text} (error {number})"), words: words.to_owned() }
}

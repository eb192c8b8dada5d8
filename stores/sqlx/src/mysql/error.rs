//! Error kinds and texts for the error numbers of MariaDB and MySQL.
use idempotent_core::StoreErrorKind;
use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;

use crate::server::{Contention, FailedProof, Refusal};

/// Returns the error number of the server, or 0.
fn number(error: &dyn DatabaseError) -> u16 {
    error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number)
}

/// Returns true if the server was demoted or is a replica, or if a statement made the session read-only.
pub(super) fn is_read_only(error: &dyn DatabaseError) -> bool {
    matches!(number(error), 1290 | 1792 | 1836)
}

/// Returns true if the disk, or the file of a tablespace, had no room for the statement.
pub(super) fn is_full(error: &dyn DatabaseError) -> bool {
    matches!(number(error), 1021 | 1114)
}

/// Returns true if the server ended the connection, or may have.
pub(super) fn ends_connection(error: &dyn DatabaseError) -> bool {
    let state = error.code().unwrap_or_default();
    // 70: KILL ended the connection or the statement on MariaDB.
    ["08", "70"].iter().any(|class| state.starts_with(class))
}

/// Returns the text for a connection that the client refuses to open.
pub(super) fn configuration(cause: &str) -> String {
    // The client's text names a feature that this crate does not have.
    if cause.contains("RSA") {
        return format!("{{database}}: {PASSWORD_BY_TLS}: {TLS}");
    }
    format!("{{database}}: the client refuses the options of the connection ({cause}): check the URL")
}

const PASSWORD_BY_TLS: &str = "the server asks for the password itself (caching_sha2_password, the default of MySQL 8 and later), \
                               which the client sends only by TLS";
const TLS: &str = "enable the feature `mysql-tls`, set `ssl-mode=REQUIRED` in the URL, and offer TLS on the server";

/// The server asks for the password itself if its cache has no entry of the user, such as after a restart. The client sends a
/// wrong answer over a socket, where it supports no TLS.
pub(super) const SOCKET: &str = "; MySQL 8 and later refuse also the right password on a Unix socket, until the user has logged in once by TLS: connect by \
     TCP with the feature `mysql-tls` and `ssl-mode=REQUIRED`";

/// Returns the kind of contention that rolled the statement back.
pub(super) fn contention(error: &dyn DatabaseError) -> Option<Contention> {
    match number(error) {
        1213 | 1020 => Some(Contention::Raced),
        1205 | 3572 => Some(Contention::Locked),
        _ => None,
    }
}

/// Returns true for the number of an error with which the server can roll back the whole transaction.
pub(super) fn rolls_back(number: u32) -> bool {
    matches!(number, 1213 | 1020 | 1205)
}

/// Returns the meaning of an error of a statement at the end of a run for its transaction.
pub(super) fn proof(error: &dyn DatabaseError) -> Option<FailedProof> {
    match number(error) {
        // The savepoint is missing.
        1305 => Some(FailedProof::Ended),
        // A function is out of range.
        1690 => Some(FailedProof::NoRecord),
        _ => None,
    }
}

/// Interprets an error of the server. A failed statement is rolled back, as each statement is a transaction of its own.
pub(super) fn refusal(error: &dyn DatabaseError) -> Refusal {
    use StoreErrorKind::{Ambiguous, Corrupt, Denied, Foreign, NotApplied, Schema};
    let number = number(error);
    let (kind, text) = match number {
        1146 => (Schema, "table `{table}` is missing in {database}: open it once with `create(true)`"),
        1048 | 1054 | 1136 | 1264 | 1265 | 1292 | 1364 | 1366 | 1406 => (
            Foreign,
            "table `{table}` in {database} has a different layout than this version creates: set another `table`, or \
             rename the existing one",
        ),
        1049 => (Denied, "{database}: the database does not exist: create it, or name another one in the URL"),
        // MariaDB reports no more detail if it takes TLS only.
        1045 | 1251 | 1698 => (
            Denied,
            "{database}: user or password rejected, or the server takes TLS only: check both in the URL, and its \
             `ssl-mode`{socket}",
        ),
        1129 | 1130 => (
            Denied,
            "{database}: the server admits no connection from this host: create the user for this host, or unblock it by \
             `mariadb-admin flush-hosts` or `TRUNCATE TABLE performance_schema.host_cache`",
        ),
        3159 => (Denied, "{database}: the server takes TLS only: set `ssl-mode` in the URL"),
        1044 => (
            Denied,
            "{database}: the database does not exist, or the user has no privileges on it: check the name in the URL, or GRANT \
             SELECT, INSERT, UPDATE, DELETE on its tables",
        ),
        1142 | 1143 | 1227 => (
            Denied,
            "{database}: missing privileges: GRANT SELECT, INSERT, UPDATE, DELETE on `{table}` and the tables whose names begin \
             with it, and CREATE on the database for `create(true)`",
        ),
        1290 | 1792 | 1836 => (NotApplied, "{database} is read-only, probably a replica: name the primary in the URL"),
        1040 | 1203 | 1226 => (
            NotApplied,
            "{database}: the server's connection limit is reached: raise max_connections, or lower `connections` (now \
             {connections})",
        ),
        1021 | 1037 | 1038 | 1041 | 1114 => {
            (NotApplied, "{database}: the server is out of disk space or memory: free some")
        }
        1317 | 1969 | 3024 => {
            (NotApplied, "{database}: statement cancelled; it was killed, or exceeded a time limit of the server")
        }
        1020 | 1205 | 1213 | 3572 => (NotApplied, "{database}: lock conflict with another transaction; retry"),
        1153 => (Denied, "{database}: value exceeds max_allowed_packet: raise that setting, or store a smaller result"),
        1665 => (
            Denied,
            "{database}: binlog_format=STATEMENT does not allow READ COMMITTED: set binlog_format to ROW or MIXED",
        ),
        1034 | 1035 | 1194 | 1195 | 1712 | 1877 => (Corrupt, "{database} reports damaged files: restore a backup"),
        // The connection ended, possibly during the commit.
        1053 | 1077 | 1079 | 1080 | 1152 | 1158..=1161 | 1184 | 1927 => (Ambiguous, "{database} ended the connection"),
        1180 => (Ambiguous, "{database}: error during a commit"),
        _ => (NotApplied, "{database} refused the {request}"),
    };
    // The messages of these errors contain the value.
    let words = match number {
        1062 | 1264 | 1265 | 1292 | 1366 | 1406 => "message omitted, as it contains a value",
        _ => error.message(),
    };
    Refusal { kind, text: format!("{text} (error {number})"), words: words.to_owned() }
}

//! Conversion of errors of the driver and the server to [`StoreError`].
use std::error::Error as _;
use std::io::ErrorKind;
use std::time::Duration;

use idempotent_core::__private::url::unreached;
use idempotent_core::{StoreError, StoreErrorKind};

use super::driver::{Driver, Refusal};

/// The names that error texts contain. They include no password and no key.
#[derive(Clone, Debug)]
pub(crate) struct ErrorContext {
    /// `HOST:PORT/DATABASE` of the URL or of the pool's options.
    pub(crate) database: String,
    /// The record table.
    pub(crate) table: String,
    pub(crate) connections: u32,
    /// True if the store is set to read only.
    pub(crate) read_only: bool,
    /// True if the connections go through a Unix socket.
    pub(crate) socket: bool,
}

/// The phase of a call in which an error occurred.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// Nothing was sent.
    Connecting,
    /// The statement may have been run.
    Executing,
}

impl ErrorContext {
    /// Converts the error of a statement, or of a connection for a statement.
    pub(crate) fn error<D: Driver>(&self, when: Phase, error: sqlx::Error) -> StoreError {
        if self.read_only && error.as_database_error().is_some_and(D::is_read_only) {
            return StoreError::new(StoreErrorKind::Denied).because(format!(
                "{}: the store is open with `read_only(true)`: open it without `read_only` to write",
                self.database
            ));
        }
        match error.as_database_error().map(D::refusal) {
            Some(Refusal { kind, text, words }) => {
                let nothing_sent = when == Phase::Connecting && kind == StoreErrorKind::Ambiguous;
                let kind = if nothing_sent { StoreErrorKind::NotApplied } else { kind };
                let text = text
                    .replace("{socket}", if self.socket { D::SOCKET } else { "" })
                    .replace("{request}", if when == Phase::Connecting { "connection" } else { "statement" });
                let told = StoreError::new(kind).because(format!("{}: {words}", self.named(&text)));
                match error.as_database_error().is_some_and(D::is_full) {
                    true => told.with_source(error),
                    // The error may contain a value.
                    false => told,
                }
            }
            None => {
                let (kind, text) = client_error::<D>(when, &error);
                let told = StoreError::new(kind).because(self.named(&text));
                match error {
                    // The text replaces the cause, which names a feature that users of this crate cannot enable.
                    sqlx::Error::Configuration(cause) if !text.contains(&cause.to_string()) => told,
                    error => told.with_source(error),
                }
            }
        }
    }

    fn named(&self, text: &str) -> String {
        text.replace("{database}", &self.database)
            .replace("{table}", &self.table)
            .replace("{connections}", &self.connections.to_string())
    }

    /// Returns the error for a result for which the server would close the connection.
    pub(crate) fn too_large(&self, bytes: usize, most: usize) -> StoreError {
        StoreError::new(StoreErrorKind::Denied).because(format!(
            "{}: result of {bytes} bytes exceeds the room in max_allowed_packet ({most} bytes): raise that setting, \
             or store a smaller result",
            self.database
        ))
    }

    /// Returns the error of a timeout.
    pub(crate) fn silent(&self, when: Phase, waited: Duration) -> StoreError {
        let (kind, what, remedy) = match when {
            Phase::Connecting => (StoreErrorKind::NotApplied, "no connection", SILENT),
            Phase::Executing => (StoreErrorKind::Ambiguous, "no answer", ""),
        };
        StoreError::new(kind).because(format!("{what} from {} after {waited:?}{remedy}", self.database))
    }
}

/// Servers of some other protocols wait for the client to speak first, as do networks that drop packets.
const SILENT: &str =
    ": check that the server is not overloaded, that the host and the port are its own, and the network";

/// Returns true if the server had no disk space for a statement.
pub(crate) fn is_full<D: Driver>(error: &StoreError) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<sqlx::Error>());
    source.and_then(sqlx::Error::as_database_error).is_some_and(D::is_full)
}

fn no_tls<D: Driver>(cause: String) -> (StoreErrorKind, String) {
    let text = format!("{{database}}: TLS failed ({cause}): check `{}` and the certificates of the URL", D::TLS);
    (StoreErrorKind::Denied, text)
}

fn client_error<D: Driver>(when: Phase, error: &sqlx::Error) -> (StoreErrorKind, String) {
    let text = match error {
        sqlx::Error::PoolTimedOut => {
            return (
                StoreErrorKind::NotApplied,
                "{database}: no connection within the timeout; all {connections} connections were in use, or none \
                 could be opened: raise `connections`, or make fewer calls at a time"
                    .to_owned(),
            );
        }
        sqlx::Error::PoolClosed => {
            return (StoreErrorKind::NotApplied, "{database}: the connection pool is closed".to_owned());
        }
        sqlx::Error::Tls(cause) => return no_tls::<D>(cause.to_string()),
        // rustls reports certificate errors as invalid data.
        sqlx::Error::Io(cause) if when == Phase::Connecting && cause.kind() == ErrorKind::InvalidData => {
            return no_tls::<D>(cause.to_string());
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) => {
            return (
                StoreErrorKind::Foreign,
                "table `{table}` in {database} has a different layout than this version creates: set another `table`"
                    .to_owned(),
            );
        }
        sqlx::Error::Configuration(cause) if when == Phase::Connecting => {
            return (StoreErrorKind::Denied, D::configuration(&cause.to_string()));
        }
        sqlx::Error::Protocol(cause) if when == Phase::Connecting => return foreign_protocol::<D>(cause),
        // The cause is a text of the operating system.
        sqlx::Error::Io(cause) if when == Phase::Connecting => {
            let remedy = match cause.kind() {
                ErrorKind::ConnectionRefused => format!("check that {} is running, and the host and port", D::NAME),
                _ => unreached(&cause.to_string()).to_owned(),
            };
            format!("the connection to {{database}} failed ({cause}): {remedy}")
        }
        sqlx::Error::Io(cause) => format!("the connection to {{database}} failed ({cause})"),
        _ => "the connection to {database} failed".to_owned(),
    };
    match when {
        Phase::Connecting => (StoreErrorKind::NotApplied, text),
        Phase::Executing => (StoreErrorKind::Ambiguous, text),
    }
}

/// Interprets an answer that the client does not understand. A login method is a matter of settings; other answers may come
/// from a connection that ended halfway.
fn foreign_protocol<D: Driver>(cause: &str) -> (StoreErrorKind, String) {
    if cause.contains("auth") {
        let remedy = "let the user log in by another method, such as a password";
        return (StoreErrorKind::Denied, format!("{{database}}: login method not supported ({cause}): {remedy}"));
    }
    // The client takes the end of the connection for a zero.
    if cause.contains("SSLRequest: 0x00") {
        let text = format!("the connection to {{database}} failed: {}", unreached("closed"));
        return (StoreErrorKind::NotApplied, text);
    }
    let text = format!("{{database}} does not answer as {} ({cause}): check the host and the port", D::NAME);
    (StoreErrorKind::NotApplied, text)
}

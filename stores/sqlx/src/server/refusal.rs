//! The meaning of errors that a server returns.
use idempotent_core::StoreErrorKind;

/// The meaning of an error of the server. The text has the placeholders `{database}`, `{table}`, `{connections}`,
/// `{request}` (connection or statement) and `{socket}` (what the error may also mean on a Unix socket).
pub(crate) struct Refusal {
    pub(crate) kind: StoreErrorKind,
    pub(crate) text: String,
    /// The server's message, if it contains no value of a row.
    pub(crate) words: String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Contention {
    /// Another transaction was faster.
    Raced,
    /// Another transaction holds a lock that the statement needs.
    Locked,
}

//! The [`Driver`] trait: binding and sending statements, and interpreting errors.
use std::fmt::Debug;

use idempotent_core::{Key, StoreErrorKind};
use sqlx::Database;
use sqlx::error::DatabaseError;

use super::value::Value;
use crate::row::Cells;

/// A database's driver.
pub(crate) trait Driver: Debug + Send + Sync + Sized + 'static {
    type Db: Database<Row: Cells>;
    /// A value that its statements can bind.
    type Value: From<Value> + Clone + Debug + Send + Sync;

    /// The name of the database in errors.
    const NAME: &'static str;
    /// The URL parameter that configures TLS.
    const TLS: &'static str;
    /// Another reason for a refused login on a Unix socket.
    const SOCKET: &'static str;

    fn bind(query: Query<Self>, value: Self::Value) -> Query<Self>;

    /// Returns the number of written rows.
    fn execute(query: Query<Self>, connection: &mut Connection<Self>) -> impl DriverFuture<u64>;
    fn first(query: Query<Self>, connection: &mut Connection<Self>) -> impl DriverFuture<Option<Row<Self>>>;
    fn all(query: Query<Self>, connection: &mut Connection<Self>) -> impl DriverFuture<Vec<Row<Self>>>;
    /// Sends several statements without parameters in one round trip. Adds the rows of all of them, up to an error.
    fn send_text(text: String, connection: &mut Connection<Self>, rows: &mut Vec<Row<Self>>) -> impl DriverFuture<()>;

    /// Interprets an error that the server returned.
    fn refusal(error: &dyn DatabaseError) -> Refusal;
    /// Returns true if the session or its server takes no writes.
    fn is_read_only(error: &dyn DatabaseError) -> bool;
    /// Returns true if the server had no disk space for the statement.
    fn is_full(error: &dyn DatabaseError) -> bool;
    /// Returns true if the server ended the connection, or may have.
    fn ends_connection(error: &dyn DatabaseError) -> bool;
    /// Returns the text for a connection that the client refuses to open, with the remedy.
    fn configuration(cause: &str) -> String {
        format!("{{database}}: the client refuses the options of the connection ({cause}): check the URL")
    }
    /// Returns the kind of contention if the statement failed due to another transaction and had no effect.
    fn contention(error: &dyn DatabaseError) -> Option<Contention>;

    /// Returns the number of the key's advisory lock, if claims take one.
    fn lock(&self, _: &Key) -> Option<i64> {
        None
    }

    /// Returns the size of the largest value that the server accepts, in bytes.
    fn most(&self) -> usize {
        usize::MAX
    }

    /// Returns true if a statement with this error ends its transaction.
    fn ends(&self, error: &dyn DatabaseError) -> bool;
}

/// A future of a driver's operation.
pub(crate) trait DriverFuture<T>: Future<Output = Result<T, sqlx::Error>> + Send {}
impl<T, F: Future<Output = Result<T, sqlx::Error>> + Send> DriverFuture<T> for F {}

pub(crate) type Connection<D> = <<D as Driver>::Db as Database>::Connection;
pub(crate) type Row<D> = <<D as Driver>::Db as Database>::Row;

/// The driver's statement, which stays prepared on its connection.
pub(crate) type Query<D> = sqlx::query::Query<'static, <D as Driver>::Db, <<D as Driver>::Db as Database>::Arguments>;

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

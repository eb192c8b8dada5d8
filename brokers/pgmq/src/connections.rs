//! Connections, which are opened on demand.
//!
//! The pool of sqlx tests each returned connection on the server, which is an additional round trip for each statement.
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_mq::SourceError;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, Postgres};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::error::{QueryError, ends_connections};
use crate::options::{self, Server};

/// The maximum time for a connection, and for the result of a statement.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// The connections to one database, up to a limit.
pub(crate) struct Connections {
    pub(crate) options: PgConnectOptions,
    permits: Semaphore,
    /// The connection that was returned last is used next.
    idle: Mutex<Vec<PgConnection>>,
}

impl Connections {
    /// Parses the URL, and connects later.
    ///
    /// # Errors
    /// The URL is invalid.
    pub(crate) fn new(server: &Server) -> Result<Self, SourceError> {
        let (options, connections) = options::client(server)?;
        let permits = Semaphore::new(connections.min(Semaphore::MAX_PERMITS));
        let is_named = options.get_application_name().is_some();
        let options = if is_named { options } else { options.application_name("idempotent") };
        Ok(Self { options, permits, idle: Mutex::default() })
    }

    /// Runs a statement in a transaction of its own, and returns its rows.
    ///
    /// # Cancellation
    /// The statement may have taken effect. Its connection is closed.
    pub(crate) async fn rows(&self, statement: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, QueryError> {
        let permit = timeout(ANSWER, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else { return Err(self.unconnected(sqlx::Error::PoolTimedOut)) };
        let idle = self.idle().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        match timeout(ANSWER, statement.fetch_all(&mut connection)).await {
            Ok(Ok(rows)) => {
                self.keep(connection);
                Ok(rows)
            }
            Ok(Err(error)) => {
                if ends_connections(&error) {
                    self.idle().clear();
                }
                Err(QueryError::Failed(error))
            }
            Err(_) => {
                self.idle().clear();
                Err(QueryError::Silent)
            }
        }
    }

    /// Stores an open connection for a later statement.
    pub(crate) fn keep(&self, connection: PgConnection) {
        self.idle().push(connection);
    }

    pub(crate) async fn connect(&self) -> Result<PgConnection, QueryError> {
        match timeout(ANSWER, PgConnection::connect_with(&self.options)).await {
            Ok(connection) => connection.map_err(|error| self.unconnected(error)),
            Err(_) => Err(self.unconnected(sqlx::Error::PoolTimedOut)),
        }
    }

    /// Returns the error of a statement that was not sent.
    pub(crate) fn unconnected(&self, error: sqlx::Error) -> QueryError {
        QueryError::Unconnected(format!("{}:{}", self.options.get_host(), self.options.get_port()).into(), error)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PgConnection>> {
        // No code panics while it holds this lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows no options, which contain a password.
impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("idle", &self.idle().len()).finish_non_exhaustive()
    }
}

//! Detection of a pooler that assigns server connections for one transaction.
//!
//! A pooler that assigns a server connection for one transaction, such as PgBouncer in transaction mode, sends the statements of one
//! client to several server connections. There, a prepared statement is missing, or another client has prepared a different
//! text under its name, which may settle a message of another queue. PgBouncer 1.21 and later keeps prepared statements with
//! `max_prepared_statements`.
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Error, Row};
use tokio::time::timeout;

use crate::connections::{ANSWER, Connections};
use crate::error::QueryError;

/// The order of the statements of two clients. A pooler that lends connections in turn, and one that lends the last one first,
/// give both clients the same server connection in this order.
const ORDER: [usize; 8] = [0, 1, 1, 0, 0, 0, 1, 0];

/// Returns false if no pooler assigns server connections for one transaction. Otherwise, and without a second connection to
/// compare, a source must not listen: no notification arrives through such a pooler.
///
/// Checks that a statement which one client has prepared remains the statement of this client.
///
/// # Errors
/// - `Pooled`: a pooler loses prepared statements.
/// - `Unconnected`: the server cannot be reached, or a statement of this check failed.
///
/// # Cancellation
/// The connections are closed.
pub(crate) async fn check(connections: &Connections) -> Result<bool, QueryError> {
    let mut first = connections.connect().await?;
    // The statements of the source report a limit of connections.
    let Ok(mut second) = connections.connect().await else { return Ok(true) };
    // A session pooler that has no other server connection lets the second client wait.
    let Ok(checked) = timeout(ANSWER, compare(connections, [&mut first, &mut second])).await else { return Ok(true) };
    let may_be_lent = checked?;
    connections.keep(first);
    Ok(may_be_lent)
}

async fn compare(connections: &Connections, clients: [&mut PgConnection; 2]) -> Result<bool, QueryError> {
    let mut seen = Vec::new();
    for (client, added) in ORDER.map(|client| (client, i32::from(client == 1))) {
        // sqlx numbers the statements of each connection, so both texts have the same name.
        let statement = sqlx::query(AssertSqlSafe(format!("SELECT $1::int4 + {added}, pg_backend_pid()"))).bind(10);
        let row = statement.fetch_one(&mut *clients[client]).await;
        let answer = row.and_then(|row: PgRow| Ok((row.try_get::<i32, _>(0)?, row.try_get::<i32, _>(1)?)));
        let process = process_of(answer, 10 + added).map_err(|error| connections.unconnected(error))?;
        seen.push((client, process.ok_or(QueryError::Pooled)?));
    }
    Ok(are_lent(&seen))
}

/// Returns the server process of an answer with this sum, or `None` for the answer of another statement.
fn process_of(answer: Result<(i32, i32), Error>, expected: i32) -> Result<Option<i32>, Error> {
    match answer {
        Ok((sum, process)) => Ok((sum == expected).then_some(process)),
        Err(error) if is_of_another_statement(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether two clients share a server process, or one client changes its process.
fn are_lent(seen: &[(usize, i32)]) -> bool {
    seen.iter().any(|one| seen.iter().any(|other| (one.0 == other.0) != (one.1 == other.1)))
}

/// Returns true for the errors of a statement that is missing, exists already, or has other parameters or columns.
fn is_of_another_statement(error: &Error) -> bool {
    match error {
        Error::Database(refusal) => refusal.code().is_some_and(|code| ["26000", "42P05", "08P01"].contains(&&*code)),
        Error::RowNotFound | Error::ColumnDecode { .. } | Error::Decode(_) | Error::ColumnIndexOutOfBounds { .. } => {
            true
        }
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_harness::servers::PostgresServer;
    use sqlx::Connection;

    use super::*;

    #[tokio::test]
    async fn an_answer_of_another_statement_is_one_with_another_sum_or_without_the_statement() {
        assert_eq!(process_of(Ok((10, 7)), 10).unwrap(), Some(7));
        assert_eq!(process_of(Ok((11, 7)), 10).unwrap(), None);
        assert_eq!(process_of(Err(Error::RowNotFound), 10).unwrap(), None);
        assert!(process_of(Err(Error::PoolTimedOut), 10).is_err());
        let server = PostgresServer::start();
        let mut client = PgConnection::connect(&server.url_of("postgres")).await.unwrap();
        let mut fails = async |sql: &'static str| Err(sqlx::raw_sql(sql).execute(&mut client).await.unwrap_err());
        assert_eq!(process_of(fails("EXECUTE missing").await, 10).unwrap(), None);
        assert!(process_of(fails("SELECT 1 / 0").await, 10).is_err());
    }

    #[test]
    fn clients_with_processes_of_their_own_are_not_lent_any() {
        let seen = |processes: [i32; 8]| ORDER.into_iter().zip(processes).collect::<Vec<_>>();
        assert!(!are_lent(&seen([7, 8, 8, 7, 7, 7, 8, 7])));
        assert!(are_lent(&seen([7; 8])), "the last connection first");
        assert!(are_lent(&seen([7, 8, 7, 8, 7, 8, 7, 8])), "in turn");
    }
}

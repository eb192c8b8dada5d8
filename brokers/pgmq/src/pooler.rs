//! Detection of a pooler that loses prepared statements.
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

/// Checks that a statement which one client has prepared remains the statement of this client.
///
/// # Errors
/// - `Pooled`: a pooler loses prepared statements.
/// - `Unconnected`: the server cannot be reached, or a statement of this check failed.
///
/// # Cancellation
/// The connections are closed.
pub(crate) async fn check(connections: &Connections) -> Result<(), QueryError> {
    let mut first = connections.connect().await?;
    // The statements of the source report a limit of connections.
    let Ok(mut second) = connections.connect().await else { return Ok(()) };
    // A session pooler that has no other server connection lets the second client wait.
    if let Ok(checked) = timeout(ANSWER, compare(connections, [&mut first, &mut second])).await {
        checked?;
        connections.keep(first);
    }
    Ok(())
}

async fn compare(connections: &Connections, clients: [&mut PgConnection; 2]) -> Result<(), QueryError> {
    for (client, added) in ORDER.map(|client| (client, i32::from(client == 1))) {
        // sqlx numbers the statements of each connection, so both texts have the same name.
        let statement = sqlx::query(AssertSqlSafe(format!("SELECT $1::int4 + {added}"))).bind(10);
        let sum = statement.fetch_one(&mut *clients[client]).await.and_then(|row: PgRow| row.try_get::<i32, _>(0));
        match sum {
            Ok(sum) if sum == 10 + added => {}
            Ok(_) => return Err(QueryError::Pooled),
            Err(error) if is_of_another_statement(&error) => return Err(QueryError::Pooled),
            Err(error) => return Err(connections.unconnected(error)),
        }
    }
    Ok(())
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

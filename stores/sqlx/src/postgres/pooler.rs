//! Detection of a pooler that assigns a server connection for one transaction, such as PgBouncer in transaction mode.
//!
//! With such a pooler, the statements of one client reach several server connections. Named prepared statements fail
//! there, or execute the text of another client, unless the pooler keeps them (PgBouncer 1.21 and later with
//! `max_prepared_statements`). Statements without a name are never safe: sqlx sends their text and their values in two
//! round trips, between which the pooler may assign the server connection to another client.
use std::pin::pin;
use std::time::Duration;

use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};
use tokio::time::timeout;

use super::dialect::PostgresDialect;
use super::migrate::MIGRATION;
use crate::server::{ErrorContext, Phase, connect};

/// The number and the length of the waits of the second connection for its first response.
const ROUNDS: u32 = 5;
const ROUND: Duration = Duration::from_secs(1);

/// The order in which two connections are asked. A pooler that lends connections in turn, and one that lends the last one
/// first, give two clients the same server connection in this order.
const ORDER: [usize; 8] = [0, 1, 1, 0, 0, 0, 1, 0];

const REMEDY: &str = "set PgBouncer 1.21 or later to `max_prepared_statements=100`, or use its `pool_mode=session`, \
                      or connect to the server directly";

/// Returns true if a pooler assigns server connections for one transaction. `first` is a new connection with these
/// options.
///
/// # Errors
/// [`Schema`](StoreErrorKind::Schema): statements are not safe with this pooler. Other kinds: a connection failed.
pub(super) async fn detect(
    first: &mut PgConnection,
    options: &PgConnectOptions,
    place: &ErrorContext,
) -> Result<bool, StoreError> {
    // If a second connection is refused, detection is skipped: the store's own statements report the limit.
    let Ok(mut second) = connect::<PostgresDialect>(options, place, MIGRATION).await else { return Ok(false) };
    let both = timeout(MIGRATION, both_have_servers(first, &mut second)).await;
    let both = both.map_err(|_| place.silent(Phase::Connecting, MIGRATION))?;
    if !both.map_err(|error| place.error::<PostgresDialect>(Phase::Connecting, error))? {
        return Ok(false);
    }
    let asked = timeout(MIGRATION, are_lent([&mut *first, &mut second])).await;
    let asked = asked.map_err(|_| place.silent(Phase::Connecting, MIGRATION))?;
    let lent = asked.map_err(|error| place.error::<PostgresDialect>(Phase::Connecting, error))?;
    if lent {
        if is_uncached(options) {
            return Err(refused(place, "the URL has `statement-cache-capacity=0`: remove that"));
        }
        let kept = timeout(MIGRATION, keep_statements([first, &mut second])).await;
        if !kept.map_err(|_| place.silent(Phase::Connecting, MIGRATION))? {
            return Err(refused(place, REMEDY));
        }
    }
    // The pooler closes its side in any case.
    let _ = timeout(MIGRATION, second.close()).await;
    Ok(lent)
}

/// Returns false if the second connection gets no server connection while the first has one. A session pooler that has only
/// one left lets the second wait. A transaction pooler whose connections are all in use lends that of the first to the second
/// as soon as a statement of the first ends.
///
/// # Errors
/// The first connection fails.
async fn both_have_servers(first: &mut PgConnection, second: &mut PgConnection) -> Result<bool, sqlx::Error> {
    first.execute("SELECT 1").await?;
    let mut waiting = pin!(second.execute("SELECT 1"));
    for _ in 0..ROUNDS {
        if let Ok(answer) = timeout(ROUND, waiting.as_mut()).await {
            return Ok(answer.is_ok());
        }
        first.execute("SELECT 1").await?;
    }
    Ok(false)
}

/// Returns true if two clients share server connections, or one client changes its connection.
async fn are_lent(connections: [&mut PgConnection; 2]) -> Result<bool, sqlx::Error> {
    let mut seen: [Option<i32>; 2] = [None; 2];
    for client in ORDER {
        // Text without values is one round trip, which no pooler splits.
        let rows = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_all(&mut *connections[client]).await?;
        let process = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        if seen[client].is_some_and(|last| last != process) || seen[1 - client] == Some(process) {
            return Ok(true);
        }
        seen[client] = Some(process);
    }
    Ok(false)
}

/// Returns true if a statement that one client has prepared runs on each server connection, as that client's.
async fn keep_statements(connections: [&mut PgConnection; 2]) -> bool {
    for client in ORDER {
        let text = format!("SELECT $1::int4 + {client}");
        let row = sqlx::query(AssertSqlSafe(text)).bind(10).fetch_one(&mut *connections[client]).await;
        // The names of statements count up on each connection. So both texts have the same name.
        if row.and_then(|row| row.try_get::<i32, _>(0)).ok() != i32::try_from(10 + client).ok() {
            return false;
        }
    }
    true
}

/// Returns true if the statement cache is off. sqlx still names each prepared statement then, and never closes it.
fn is_uncached(options: &PgConnectOptions) -> bool {
    options.to_url_lossy().query_pairs().any(|(name, value)| name == "statement-cache-capacity" && value == "0")
}

fn refused(place: &ErrorContext, remedy: &str) -> StoreError {
    let ErrorContext { database, .. } = place;
    StoreError::new(StoreErrorKind::Schema).because(format!(
        "database {database} is behind a pooler that lends connections for one transaction and loses prepared statements: \
         {remedy}"
    ))
}

//! Checks of a database and its queues, and the creation of queues.
use idempotent_mq::SourceError;
use sqlx::Row;

use crate::connections::Connections;
use crate::error::{UPDATE, failure, fatal, unreadable};
use crate::queue_name::QueueName;

/// Reads the state of a queue. The system catalogs are readable for every role.
const STATE: &str = "\
    SELECT to_regnamespace('pgmq') IS NOT NULL AS is_installed, \
    pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS is_read_only, \
    coalesce(has_schema_privilege(to_regnamespace('pgmq')::oid, 'USAGE'), false) AS is_usable, \
    t.oid IS NOT NULL AS is_created, \
    EXISTS (SELECT FROM pg_attribute WHERE attrelid = t.oid AND attname = 'headers') AS has_headers, \
    coalesce((SELECT bool_and(has_table_privilege(t.oid, name)) \
    FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS name), false) AS is_writable, \
    EXISTS (SELECT FROM pg_trigger WHERE tgrelid = t.oid AND tgname = 'trigger_notify_queue_insert_listeners' \
    AND tgenabled <> 'D') AS notifies \
    FROM (VALUES ($1)) AS queue(name) \
    LEFT JOIN pg_class AS t ON t.relname = queue.name AND t.relnamespace = to_regnamespace('pgmq')";

#[derive(Debug)]
struct QueueState {
    is_installed: bool,
    is_read_only: bool,
    is_usable: bool,
    is_created: bool,
    has_headers: bool,
    is_writable: bool,
    notifies: bool,
}

/// Checks a queue. Returns true if PGMQ notifies of its new messages.
///
/// # Errors
/// - `Fatal`: PGMQ or the queue is missing, its version is too old, privileges are missing, or the server is read-only.
/// - `Transient`: the server cannot be reached.
pub(crate) async fn check(connections: &Connections, queue: &QueueName) -> Result<bool, SourceError> {
    let doing = format!("opening the queue `{queue}`");
    let state = state(connections, queue, &doing).await?;
    check_server(&state, &doing)?;
    if !state.is_created {
        let remedy =
            format!("it does not exist; create it by `declare` on the builder, or by `SELECT pgmq.create('{queue}')`");
        return Err(fatal(&doing, &remedy));
    }
    if !state.has_headers {
        return Err(fatal(&doing, &format!("its table has no column `headers`; {UPDATE}")));
    }
    if !state.is_writable {
        let table = queue.quoted();
        let remedy =
            format!("privileges are missing; run `GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO` this role");
        return Err(fatal(&doing, &remedy));
    }
    Ok(state.notifies)
}

/// Creates a queue that does not exist.
///
/// # Errors
/// The same as [`check`].
pub(crate) async fn create(connections: &Connections, queue: &QueueName) -> Result<(), SourceError> {
    let doing = format!("creating the queue `{queue}`");
    let state = state(connections, queue, &doing).await?;
    check_server(&state, &doing)?;
    if state.is_created {
        return Ok(());
    }
    let create = sqlx::query("SELECT pgmq.create($1)").bind(queue.as_str());
    connections.rows(create).await.map(drop).map_err(|error| failure(&doing, &error))
}

fn check_server(state: &QueueState, doing: &str) -> Result<(), SourceError> {
    if state.is_read_only {
        return Err(fatal(doing, "the server or the session is read-only; name the primary in the URL"));
    }
    if !state.is_installed {
        let remedy = "the schema `pgmq` is missing; install PGMQ 1.5 or later in this database, by `CREATE EXTENSION pgmq` or by \
                      its file `pgmq.sql`";
        return Err(fatal(doing, remedy));
    }
    if !state.is_usable {
        return Err(fatal(doing, "privileges are missing; run `GRANT USAGE ON SCHEMA pgmq TO` this role"));
    }
    Ok(())
}

async fn state(connections: &Connections, queue: &QueueName, doing: &str) -> Result<QueueState, SourceError> {
    let rows =
        connections.rows(sqlx::query(STATE).bind(queue.table())).await.map_err(|error| failure(doing, &error))?;
    let row = rows.first().ok_or_else(|| fatal(doing, "the server returns no row"))?;
    let flag = |name: &str| row.try_get::<bool, _>(name).map_err(|error| unreadable(doing, &error));
    Ok(QueueState {
        is_installed: flag("is_installed")?,
        is_read_only: flag("is_read_only")?,
        is_usable: flag("is_usable")?,
        is_created: flag("is_created")?,
        has_headers: flag("has_headers")?,
        is_writable: flag("is_writable")?,
        notifies: flag("notifies")?,
    })
}

//! Opening: checks, connections, the journal, the schema.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row};

use super::connection::{FairConnection, OpenFile};
use super::error::{self, ErrorContext};
use super::migrate::{self, KNOWN};
use super::options::{self, DatabaseTarget, SqliteStoreBuilder, Synchronous};
use super::queue::Queue;
use super::record_access::RecordAccess;
use super::statements::SqliteStatements;
use super::transactions::Transactions;
use super::{Inner, SqliteStore};
use crate::lost_result::LostResult;
use crate::schema::SchemaStatus;
use crate::table::Table;

/// The pause between checks of a journal that another process is switching.
const SWITCH_PAUSE: Duration = Duration::from_millis(10);

impl SqliteStoreBuilder {
    /// Opens the store. With [`create`](Self::create), this method also creates a missing file and missing tables. If several
    /// processes open the store at the same time, one migrates and the others wait.
    ///
    /// # Errors
    /// [`Schema`](StoreErrorKind::Schema): the table's name is refused, the table is missing or of another
    /// version. [`Denied`](StoreErrorKind::Denied): the file cannot be opened or written.
    /// [`Foreign`](StoreErrorKind::Foreign): the file is not a database, or another program created the table.
    /// [`NotApplied`](StoreErrorKind::NotApplied): another process holds the lock.
    ///
    /// # Cancellation
    /// Either all migrations are applied, or none.
    pub async fn open(self) -> Result<SqliteStore, StoreError> {
        open(self).await
    }

    /// Compares the tables of the file with the migrations of this version. Reads only.
    ///
    /// # Errors
    /// The same as [`open`](Self::open), except for the tables: missing migrations and problems of the tables are part of
    /// the status. [`Schema`](StoreErrorKind::Schema): the file is missing, or the database is in memory.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub async fn schema_status(&self) -> Result<SchemaStatus, StoreError> {
        status(self).await
    }
}

async fn open(builder: SqliteStoreBuilder) -> Result<SqliteStore, StoreError> {
    let table = Table::new(&builder.table)?;
    let target = match builder.target()? {
        _ if builder.read_only => DatabaseTarget::File(builder.existing_file()?),
        DatabaseTarget::File(path) => DatabaseTarget::File(options::check(&path, builder.create)?),
        memory => memory,
    };
    let place = Arc::new(place(&builder, &target, &table));
    let (writing, reading) = connections(&builder, &target);
    let mut connection = writing.connect().await.map_err(|error| place.error(error))?;
    // No other process could create the tables of a database in memory.
    let (readers, create) = match &target {
        DatabaseTarget::Memory => (0, true),
        DatabaseTarget::File(_) => (builder.readers, builder.create),
    };
    if builder.read_only {
        migrate::check(&mut connection, &table, &place).await?;
    } else {
        migrate::migrate(&mut connection, &table, &place, create, &KNOWN).await?;
        // Only now: a file that turned out not to be ours keeps its journal.
        if let DatabaseTarget::File(_) = &target {
            use_wal(&mut connection, &place).await?;
        }
    }
    let file = OpenFile::of(&target);
    let connection_to = |options, connection| FairConnection::new(options, place.clone(), file.clone(), connection);
    let readers = (0..readers).map(|_| connection_to(reading.clone(), None)).collect();
    let options = (target != DatabaseTarget::Memory).then(|| writing.clone());
    let writer = connection_to(writing, Some(connection));
    let transactions = Transactions::new(options, file, writer.patience())?;
    let sql = SqliteStatements::new(&table, builder.clock.is_some());
    let steps = SqliteStatements::steps_sql(&table, builder.clock.is_some());
    let order = SqliteStatements::order_sql(&table, builder.clock.is_some()).into();
    let clock = builder.clock.clone();
    let access = RecordAccess {
        sql,
        place,
        writer,
        readers,
        next_reader: 0.into(),
        lately: 0.into(),
        lost: LostResult::default(),
        clock,
    };
    Ok(SqliteStore(Arc::new(Inner {
        access,
        steps,
        order,
        looks: Queue::default(),
        writes: Queue::default(),
        next_job: 0.into(),
        transactions,
        again: builder.again(&target),
    })))
}

/// Returns the status of the schema of an existing file.
async fn status(builder: &SqliteStoreBuilder) -> Result<SchemaStatus, StoreError> {
    let table = Table::new(&builder.table)?;
    let target = DatabaseTarget::File(builder.existing_file()?);
    let place = place(builder, &target, &table);
    let (_, reading) = connections(builder, &target);
    let connection = reading.read_only(true).connect().await;
    let mut connection = connection.map_err(|error| place.error(error))?;
    let status = migrate::status(&mut connection, &table, &place, &KNOWN).await?;
    connection.close().await.map_err(|error| place.error(error))?;
    Ok(status)
}

/// Returns the names of a file for errors.
pub(super) fn place(builder: &SqliteStoreBuilder, target: &DatabaseTarget, table: &Table) -> ErrorContext {
    let file = match target {
        DatabaseTarget::Memory => ":memory:".into(),
        DatabaseTarget::File(path) => path.display().to_string(),
    };
    let (in_memory, table) = (*target == DatabaseTarget::Memory, table.name().into());
    ErrorContext { file, in_memory, table, busy_timeout: builder.busy_timeout, read_only: builder.read_only }
}

/// Returns the options of the writing connection, and those of the reading connections.
pub(super) fn connections(
    builder: &SqliteStoreBuilder,
    target: &DatabaseTarget,
) -> (SqliteConnectOptions, SqliteConnectOptions) {
    let synchronous = match builder.synchronous {
        Synchronous::Full => SqliteSynchronous::Full,
        Synchronous::Normal => SqliteSynchronous::Normal,
    };
    let options = match target {
        DatabaseTarget::Memory => SqliteConnectOptions::new().in_memory(true),
        DatabaseTarget::File(path) => SqliteConnectOptions::new().filename(path),
    };
    // The texts of statements are always the same: logging them says nothing and costs.
    let options = options.busy_timeout(builder.busy_timeout).synchronous(synchronous).disable_statement_logging();
    let options = options.read_only(builder.read_only);
    let reading = options.clone().pragma("query_only", "1");
    (options.create_if_missing(builder.create && !builder.read_only), reading)
}

/// Readers do not wait for the writer only with a write-ahead log. The file remembers it.
pub(super) async fn use_wal(connection: &mut SqliteConnection, place: &ErrorContext) -> Result<(), StoreError> {
    let start = Instant::now();
    let mode = loop {
        // The switch takes the whole file, and SQLite does not wait for that as it does for other locks.
        match sqlx::raw_sql("PRAGMA journal_mode=wal").fetch_one(&mut *connection).await {
            Err(error) if error::is_busy(&error) && start.elapsed() < place.busy_timeout => {
                tokio::time::sleep(SWITCH_PAUSE).await;
            }
            mode => break mode.map_err(|error| place.error(error))?,
        }
    };
    match mode.try_get::<&str, _>(0) {
        Ok("wal") => Ok(()),
        other => Err(StoreError::new(StoreErrorKind::Denied).because(format!(
            "`{}` has journal mode {:?} instead of `wal`: use a local file system",
            place.file,
            other.unwrap_or("unknown")
        ))),
    }
}

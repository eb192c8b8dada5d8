//! Classification of SQLite errors by their meaning for the caller.
use std::error::Error;
use std::time::Duration;

use idempotent_core::{StoreError, StoreErrorKind};

/// SQLite's primary result codes; an extended one has more in its higher bits.
mod code {
    pub(super) const ERROR: u32 = 1;
    pub(super) const PERM: u32 = 3;
    pub(super) const BUSY: u32 = 5;
    pub(super) const LOCKED: u32 = 6;
    pub(super) const NOMEM: u32 = 7;
    pub(super) const READONLY: u32 = 8;
    pub(super) const INTERRUPT: u32 = 9;
    pub(super) const IOERR: u32 = 10;
    pub(super) const CORRUPT: u32 = 11;
    pub(super) const FULL: u32 = 13;
    pub(super) const CANTOPEN: u32 = 14;
    pub(super) const SCHEMA: u32 = 17;
    pub(super) const TOOBIG: u32 = 18;
    pub(super) const CONSTRAINT: u32 = 19;
    pub(super) const MISMATCH: u32 = 20;
    pub(super) const AUTH: u32 = 23;
    pub(super) const NOTADB: u32 = 26;
    /// An extended code: the transaction began to read before another connection wrote.
    pub(super) const BUSY_SNAPSHOT: u32 = BUSY | 2 << 8;
}

/// The error text for a transaction that began to read before another connection wrote.
pub(crate) const STALE: &str = "another connection wrote after this transaction had begun to read, so it cannot write any \
                                more: begin it by `begin_with(\"BEGIN IMMEDIATE\")`, and try again";

/// The names that error texts contain.
#[derive(Clone, Debug)]
pub(super) struct ErrorContext {
    /// The file, or `:memory:`.
    pub(super) file: String,
    pub(super) in_memory: bool,
    /// The record table.
    pub(super) table: String,
    /// The time limit of waiting for a lock.
    pub(super) busy_timeout: Duration,
    /// True if the store is set to read only.
    pub(super) read_only: bool,
}

impl ErrorContext {
    /// Converts the error of a statement. SQLite's own text never contains values.
    pub(super) fn error(&self, error: sqlx::Error) -> StoreError {
        let Self { file, table, busy_timeout, .. } = self;
        let (kind, because) = match primary(&error) {
            Some(code::READONLY) if self.read_only => (
                StoreErrorKind::Denied,
                "`{file}` is open with `read_only(true)`: open it without `read_only` to write".into(),
            ),
            Some(code) => (kind(code, &error), text(extended(&error).unwrap_or(code), &error)),
            None => match &error {
                sqlx::Error::WorkerCrashed => (
                    StoreErrorKind::Ambiguous,
                    "the connection's thread has ended; the next call opens another connection".into(),
                ),
                _ => (StoreErrorKind::Ambiguous, "the connection failed".into()),
            },
        };
        let because =
            because.replace("{file}", file).replace("{table}", table).replace("{busy}", &format!("{busy_timeout:?}"));
        StoreError::new(kind).because(because).with_source(error)
    }

    /// Returns the error of a caller that waited too long for the connection.
    pub(super) fn no_turn(&self, waited: Duration) -> StoreError {
        StoreError::new(StoreErrorKind::NotApplied).because(format!(
            "`{}`: the writer connection was in use for {waited:?}; another process holds the lock, or the disk is \
             too slow for the number of callers: raise busy_timeout, or make fewer calls at a time",
            self.file
        ))
    }
}

/// Returns true if another process holds a lock.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(primary(error), Some(code::BUSY | code::LOCKED))
}

/// Returns true if the transaction began to read before another connection wrote.
#[cfg(feature = "outbox")]
pub(crate) fn is_stale(error: &sqlx::Error) -> bool {
    extended(error) == Some(code::BUSY_SNAPSHOT)
}

/// Returns true if the error is a lock timeout.
pub(super) fn is_lock(error: &StoreError) -> bool {
    error.source().and_then(|source| source.downcast_ref()).is_some_and(is_busy)
}

/// Returns true if the disk or the quota had no room for the write.
pub(super) fn is_full(error: &StoreError) -> bool {
    error.source().and_then(|source| source.downcast_ref()).and_then(primary) == Some(code::FULL)
}

fn primary(error: &sqlx::Error) -> Option<u32> {
    extended(error).map(|code| code & 0xff)
}

fn extended(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

fn message(error: &sqlx::Error) -> &str {
    error.as_database_error().map_or("", |error| error.message())
}

fn is_missing_table(error: &sqlx::Error) -> bool {
    message(error).starts_with("no such table")
}

fn kind(code: u32, error: &sqlx::Error) -> StoreErrorKind {
    match code {
        code::BUSY | code::LOCKED | code::FULL | code::NOMEM | code::INTERRUPT => StoreErrorKind::NotApplied,
        code::READONLY | code::CANTOPEN | code::PERM | code::AUTH | code::TOOBIG => StoreErrorKind::Denied,
        code::CORRUPT => StoreErrorKind::Corrupt,
        code::NOTADB => StoreErrorKind::Foreign,
        code::SCHEMA | code::CONSTRAINT | code::MISMATCH => StoreErrorKind::Schema,
        code::ERROR if is_missing_table(error) => StoreErrorKind::Schema,
        // "no such column", "has no column named": another program changed the table.
        code::ERROR if message(error).contains("column") => StoreErrorKind::Foreign,
        // IOERR and unknown codes: a write may or may not have reached the disk.
        _ => StoreErrorKind::Ambiguous,
    }
}

fn text(extended: u32, error: &sqlx::Error) -> String {
    if extended == code::BUSY_SNAPSHOT {
        return format!("`{{file}}`: {STALE}");
    }
    match extended & 0xff {
        code::BUSY | code::LOCKED => {
            "`{file}` is locked by another process, or by another connection of this one, for longer than busy_timeout \
             ({busy}): raise busy_timeout, or find who holds a transaction open"
        }
        code::READONLY => {
            "`{file}` is read-only: the file and its directory must be writable by this process, -wal and -shm beside \
             it too"
        }
        code::CANTOPEN | code::PERM | code::AUTH => {
            "`{file}` cannot be opened: it must be a file this process may read and write, in a directory it may write \
             to"
        }
        code::FULL => "the disk or the quota of `{file}` is full; nothing was written: free some space",
        code::NOMEM => "out of memory while working on `{file}`",
        code::TOOBIG => "value exceeds SQLite's limit of 1 GB: store a smaller result",
        code::IOERR => "reading or writing `{file}` failed: check the disk; WAL does not work on network file systems",
        code::CORRUPT => "`{file}` is damaged: run `PRAGMA integrity_check`, restore a backup",
        code::NOTADB => "`{file}` is not an SQLite database; the file is unchanged: use another path",
        code::ERROR if is_missing_table(error) => {
            "table `{table}` is missing in `{file}`, or in the database of the transaction that was given, if it is another \
             one: open it once with `create(true)`"
        }
        code::ERROR | code::SCHEMA | code::CONSTRAINT | code::MISMATCH => {
            "table `{table}` in `{file}` has a different layout than this version creates: open it once with `create(true)`, or set another `table`"
        }
        _ => "`{file}`: SQLite refused the statement",
    }
    .into()
}

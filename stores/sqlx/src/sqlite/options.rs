//! The settings of a store, and the checks before SQLite opens the file.
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Clock, StoreError, StoreErrorKind};

use super::migrate::KNOWN;
use crate::schema::SchemaStep;
use crate::table::Table;

/// The point at which a write is complete.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Synchronous {
    /// A write is complete when it is on the disk: each write waits for one `fsync`. No confirmed write is lost, even if the
    /// machine fails. This is the default.
    #[default]
    Full,
    /// A write is complete when the operating system has received it. A crash of the process loses nothing. A power failure or
    /// kernel crash may lose the last writes, in order from the end: a key consumed shortly before would run once more.
    Normal,
}

/// A builder for a [`SqliteStore`](super::SqliteStore).
#[derive(Clone, Debug)]
pub struct SqliteStoreBuilder {
    place: String,
    pub(super) table: String,
    pub(super) busy_timeout: Duration,
    pub(super) create: bool,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) readers: usize,
    pub(super) synchronous: Synchronous,
    pub(super) read_only: bool,
}

/// The database that contains the records.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum DatabaseTarget {
    Memory,
    File(PathBuf),
}

impl SqliteStoreBuilder {
    const MAX_READERS: usize = 64;
    /// SQLite counts it in milliseconds, 31 bits; a day is more than anybody waits.
    const MAX_BUSY: Duration = Duration::from_secs(24 * 60 * 60);

    pub(super) fn new(place: String) -> Self {
        Self {
            place,
            table: Table::DEFAULT.into(),
            busy_timeout: Duration::from_secs(5),
            create: true,
            clock: None,
            readers: 2,
            synchronous: Synchronous::Full,
            read_only: false,
        }
    }

    /// Sets the name of the record table. A name consists of at most 63 of the characters a-z, 0-9 and `_`, and does not start
    /// with a digit. A second table, `NAME_migrations`, records the applied migrations.
    ///
    /// # Default
    /// `idempotent_record`
    #[must_use]
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// Sets how long a call waits for another process's lock before it fails with
    /// [`NotApplied`](StoreErrorKind::NotApplied); at most a day, in whole milliseconds. A call that waits for other
    /// calls of its own process fails after twice this time, at least a second.
    ///
    /// # Default
    /// 5 s
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout.min(Self::MAX_BUSY);
        self
    }

    /// Sets whether opening creates a missing file and missing tables. Without this setting, the store writes only records.
    ///
    /// # Default
    /// true
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets a clock that replaces SQLite's clock, for tests. Every process on the file must use the same clock.
    ///
    /// # Default
    /// SQLite's `unixepoch('now')`, read under the lock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the number of read-only connections for `peek`, listings and duplicates, 1 to 64. They are opened on demand. A
    /// database in memory has none.
    ///
    /// # Default
    /// 2
    #[must_use]
    pub fn readers(mut self, readers: usize) -> Self {
        self.readers = readers.clamp(1, Self::MAX_READERS);
        self
    }

    /// Sets the point at which a write is complete.
    ///
    /// # Default
    /// [`Synchronous::Full`]
    #[must_use]
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Sets whether the store only reads, for tools that inspect records.
    ///
    /// SQLite then opens the file in its read-only mode. Nothing is created, also with [`create`](Self::create), and each
    /// method that writes fails as [`Denied`](StoreErrorKind::Denied). SQLite needs the files `-wal` and `-shm` of a file in
    /// WAL mode, and creates them if they are missing.
    ///
    /// # Default
    /// false
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Returns the SQL text of all migrations of the store's tables, without a connection to the database.
    ///
    /// Use it where an administrator creates tables. A program with other rights executes the text, and the store opens
    /// without [`create`](Self::create). A later version of this crate may add migrations, and never changes old ones.
    ///
    /// ```
    /// use idempotent_sqlx::SqliteStore;
    ///
    /// for step in SqliteStore::builder("sqlite:app.db").table("payments").schema_steps()? {
    ///     println!("{step}");
    /// }
    /// # Ok::<_, idempotent_core::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// [`Schema`](idempotent_core::StoreErrorKind::Schema): the name of the table or of the schema is refused.
    pub fn schema_steps(&self) -> Result<Vec<SchemaStep>, StoreError> {
        Ok(KNOWN.steps::<sqlx::Sqlite>(&Table::new(&self.table)?))
    }

    /// Returns a builder that opens the same file again, even after this process has changed its working directory.
    pub(super) fn again(self, target: &DatabaseTarget) -> Option<Self> {
        match target {
            DatabaseTarget::Memory => None,
            DatabaseTarget::File(path) => Some(Self { place: path.to_str()?.to_owned(), create: false, ..self }),
        }
    }

    /// Returns the path of a database file that exists.
    pub(super) fn existing_file(&self) -> Result<PathBuf, StoreError> {
        match self.target()? {
            DatabaseTarget::File(path) => check(&path, false),
            DatabaseTarget::Memory => {
                Err(refused("a database in memory is empty when it opens: name a file to read".into()))
            }
        }
    }

    /// Returns the database that the URL names.
    pub(super) fn target(&self) -> Result<DatabaseTarget, StoreError> {
        let place = self.place.as_str();
        let path = match place.strip_prefix("sqlite:") {
            Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
            None => match place.split_once("://") {
                // What follows may hold a password: it is not shown.
                Some((scheme, _)) => {
                    return Err(refused(format!(
                        "store URL has the scheme `{scheme}`: this store takes a path, `sqlite:PATH` or \
                         `sqlite::memory:`"
                    )));
                }
                None => place,
            },
        };
        if let Some((_, settings)) = path.split_once('?') {
            let name = settings.split(['=', '&']).next().unwrap_or_default();
            return Err(refused(format!(
                "store URL has a setting `{name}` after `?`: settings are made on the builder; give `sqlite:PATH`"
            )));
        }
        if path.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:")) {
            let text =
                "store URL is a `file:` URI of SQLite: this store takes a path, `sqlite:PATH` or `sqlite::memory:`";
            return Err(refused(text.into()));
        }
        match path {
            name if [":memory", "memory:", "memory"].contains(&name) => Err(refused(format!(
                "the path of the database is `{name}`: did you mean `sqlite::memory:`? A file of this name is `./{name}`"
            ))),
            "" => Err(refused("the path of the database is empty: use `sqlite:PATH` or `sqlite::memory:`".into())),
            ":memory:" => Ok(DatabaseTarget::Memory),
            path => Ok(DatabaseTarget::File(PathBuf::from(path))),
        }
    }
}

/// Looks at the path before SQLite does, whose one text for all of this is "unable to open database file".
pub(super) fn check(path: &Path, create: bool) -> Result<PathBuf, StoreError> {
    let shown = shown(path);
    let denied = |text: String| StoreError::new(StoreErrorKind::Denied).because(text);
    if path.to_string_lossy().contains('\0') {
        return Err(refused("the path of the database contains a NUL byte: use another path".into()));
    }
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            return Err(denied(format!("`{shown}` is a directory: name a file in the directory")));
        }
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => missing(path, create)?,
        Err(error) => {
            let text = format!(
                "`{shown}` cannot be accessed ({error}): check the permissions of the file and its directories"
            );
            return Err(denied(text).with_source(error));
        }
    }
    // Another working directory must not change the file.
    std::path::absolute(path).map_err(|error| denied(format!("`{shown}` is not a valid path: {error}")))
}

/// Masks a path for error texts: a mistyped URL is a path, and may contain a password.
fn shown(path: &Path) -> Box<str> {
    let text = path.to_string_lossy();
    if text.contains("//") || text.contains(':') { idempotent_core::__private::url::masked(&text) } else { text.into() }
}

fn missing(path: &Path, create: bool) -> Result<(), StoreError> {
    let shown = shown(path);
    if !create {
        return Err(refused(format!(
            "the database file `{shown}` is missing: check the path, or open it once with `create(true)`"
        )));
    }
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) if !parent.is_dir() => Err(StoreError::new(StoreErrorKind::Denied).because(format!(
            "`{shown}` cannot be created, because `{}` is not a directory: create the directory",
            self::shown(parent)
        ))),
        _ => Ok(()),
    }
}

fn refused(text: String) -> StoreError {
    StoreError::new(StoreErrorKind::Schema).because(text)
}

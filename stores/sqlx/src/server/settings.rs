//! Settings of a store on a database server, and the builder methods that set them.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Clock, StoreError, StoreErrorKind};

use crate::table::Table;

/// The settings of a builder. `P` is the type of its pools.
#[derive(Clone, Debug)]
pub(crate) struct ServerSettings<P> {
    pub(crate) target: ServerTarget<P>,
    pub(crate) table: String,
    pub(crate) schema: Option<String>,
    /// The number of partitions of new tables, not validated.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "other databases have no such setting"))]
    pub(crate) partitions: Option<u16>,
    pub(crate) connections: u32,
    pub(crate) patience: Duration,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) clock: Option<Arc<dyn Clock>>,
}

/// The database that contains the records.
#[derive(Clone)]
pub(crate) enum ServerTarget<P> {
    Url(String),
    Pool(P),
}

// A URL may contain a password.
impl<P> fmt::Debug for ServerTarget<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(&idempotent_core::__private::url::masked(url)),
            Self::Pool(_) => f.write_str("a pool"),
        }
    }
}

impl<P> ServerSettings<P> {
    pub(crate) fn new(target: ServerTarget<P>) -> Self {
        Self {
            target,
            table: Table::DEFAULT.into(),
            schema: None,
            partitions: None,
            connections: 10,
            patience: Duration::from_secs(5),
            create: false,
            read_only: false,
            clock: None,
        }
    }

    /// Checks the settings that exclude each other.
    ///
    /// # Errors
    /// `read_only` is set together with a setting that it excludes.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let text = match &self.target {
            _ if !self.read_only => return Ok(()),
            _ if self.create => "`read_only(true)` excludes `create(true)`: remove one of them",
            ServerTarget::Pool(_) => {
                "`read_only(true)` needs connections of the store's own: open the store by its URL, or make the \
                 connections of the pool read-only"
            }
            ServerTarget::Url(_) => return Ok(()),
        };
        Err(StoreError::new(StoreErrorKind::Schema).because(text))
    }

    /// Returns the validated name of the table.
    pub(crate) fn table(&self) -> Result<Table, StoreError> {
        let table = Table::new(&self.table)?.with_room_for_migrations()?;
        match &self.schema {
            Some(schema) => table.in_schema(schema),
            None => Ok(table),
        }
    }
}

/// The methods of a builder whose one field is its [`Settings`].
macro_rules! server_builder {
    ($builder:ident) => {
        impl $builder {
            /// Sets the name of the record table. A name consists of at most 52 of the characters a-z, 0-9 and `_`, and
            /// does not start with a digit. A second table, `NAME_migrations`, records the applied migrations.
            ///
            /// # Default
            /// `idempotent_record`
            pub fn table(mut self, name: impl Into<String>) -> Self {
                self.0.table = name.into();
                self
            }

            /// Sets the maximum number of connections, at least 1. The store connects on demand. A store on an existing
            /// pool ignores this setting.
            ///
            /// # Default
            /// 10
            pub fn connections(mut self, connections: u32) -> Self {
                self.0.connections = connections.max(1);
                self
            }

            /// Sets how long a call waits for a connection, and then for an answer. Without an answer, the outcome is
            /// [`Ambiguous`](::idempotent_core::StoreErrorKind::Ambiguous), and the connection is closed.
            ///
            /// # Default
            /// 5 s
            pub fn timeout(mut self, timeout: ::std::time::Duration) -> Self {
                self.0.patience = timeout.max(::std::time::Duration::from_millis(1));
                self
            }

            /// Sets whether opening the store creates missing tables. Use it in tests, trials and programs that migrate
            /// their own database. Without this setting, the store writes only records, and a missing table is an error.
            ///
            /// # Default
            /// false
            pub fn create(mut self, create: bool) -> Self {
                self.0.create = create;
                self
            }

            /// Sets whether the store only reads, for tools that inspect records.
            ///
            /// Each session of the store is then read-only: the server refuses every write, and the method fails as
            /// [`Denied`](::idempotent_core::StoreErrorKind::Denied). This setting excludes [`create`](Self::create) and an
            /// existing pool.
            ///
            /// # Default
            /// false
            pub fn read_only(mut self, read_only: bool) -> Self {
                self.0.read_only = read_only;
                self
            }

            /// Compares the tables with the migrations of this version, over a connection of its own. Reads only.
            ///
            /// # Errors
            /// The same as [`connect`](Self::connect), except for the tables: missing migrations and problems of the
            /// tables are part of the status.
            ///
            /// # Cancellation
            /// Dropping the future closes the connection.
            pub async fn schema_status(&self) -> Result<crate::SchemaStatus, ::idempotent_core::StoreError> {
                super::open::status(&self.0).await
            }

            /// Sets a clock that replaces the server's clock, for tests. Every process must use the same clock.
            ///
            /// # Default
            /// The server's clock
            pub fn clock(mut self, clock: ::std::sync::Arc<dyn ::idempotent_core::Clock>) -> Self {
                self.0.clock = Some(clock);
                self
            }
        }
    };
}
pub(crate) use server_builder;

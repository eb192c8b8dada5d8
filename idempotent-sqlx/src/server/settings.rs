//! How a store on a server is set up.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Clock, StoreError};

use crate::table::Table;

/// What a builder holds; `P` is the kind of its pools.
#[derive(Clone, Debug)]
pub(crate) struct Settings<P> {
    pub(crate) target: Target<P>,
    pub(crate) table: String,
    pub(crate) schema: Option<String>,
    pub(crate) connections: u32,
    pub(crate) patience: Duration,
    pub(crate) create: bool,
    pub(crate) clock: Option<Arc<dyn Clock>>,
}

/// Where the records lie.
#[derive(Clone)]
pub(crate) enum Target<P> {
    Url(String),
    Pool(P),
}

/// A URL holds a password.
impl<P> fmt::Debug for Target<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(&idempotent_core::__private::url::masked(url)),
            Self::Pool(_) => f.write_str("a pool"),
        }
    }
}

impl<P> Settings<P> {
    pub(crate) fn new(target: Target<P>) -> Self {
        Self {
            target,
            table: Table::DEFAULT.into(),
            schema: None,
            connections: 10,
            patience: Duration::from_secs(5),
            create: false,
            clock: None,
        }
    }

    /// The table's name, checked.
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
            /// The name of the record table: letters a-z, digits and `_`, at most 63, no digit first. Its bookkeeping is
            /// in a second table, `NAME_migrations`, so a name may have 52 letters at most.
            ///
            /// # Default
            /// `idempotent_record`
            pub fn table(mut self, name: impl Into<String>) -> Self {
                self.0.table = name.into();
                self
            }

            /// Connections at most, at least 1; made when needed. Of no use for a store on a pool of yours.
            ///
            /// # Default
            /// 10
            pub fn connections(mut self, connections: u32) -> Self {
                self.0.connections = connections.max(1);
                self
            }

            /// How long a call waits for a connection, and then for an answer. Without an answer its outcome is
            /// [`Ambiguous`](::idempotent_core::StoreErrorKind::Ambiguous), and the connection is closed.
            ///
            /// # Default
            /// 5 s
            pub fn timeout(mut self, timeout: ::std::time::Duration) -> Self {
                self.0.patience = timeout.max(::std::time::Duration::from_millis(1));
                self
            }

            /// Whether missing tables are made, for tests, trials and programs that migrate their own database. Without
            /// it nothing but records is ever written, and a missing table is an error that says so.
            ///
            /// # Default
            /// false
            pub fn create(mut self, create: bool) -> Self {
                self.0.create = create;
                self
            }

            /// A clock to judge leases by instead of the server's: for tests. Every process must have the same.
            ///
            /// # Default
            /// The server's
            pub fn clock(mut self, clock: ::std::sync::Arc<dyn ::idempotent_core::Clock>) -> Self {
                self.0.clock = Some(clock);
                self
            }
        }
    };
}
pub(crate) use server_builder;

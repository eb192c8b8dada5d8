//! How a store is set up, and what is refused before PostgreSQL is asked.
use std::str::FromStr;

use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::PostgresStore;
use crate::plan::{Settings, Tls, server_builder};

/// Sets up a [`PostgresStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct PostgresStoreBuilder(pub(super) Settings<PgPool>, pub(super) Session);

/// The use of a server session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    /// True if waiting runs are notified.
    pub(super) listening: bool,
    /// True if another store has already looked for a pooler.
    pub(super) is_known: bool,
}

impl Session {
    pub(super) const NEW: Self = Self { listening: true, is_known: false };
}

server_builder!(PostgresStoreBuilder);

impl PostgresStoreBuilder {
    /// The schema of both tables, which has to be there. Of the same letters as a table's name.
    ///
    /// # Default
    /// The first one of the connection's `search_path`
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.0.schema = Some(name.into());
        self
    }

    /// Sets whether a waiting run receives a notification when the run that it waits for ends. Notifications (`LISTEN`) use one
    /// more connection while a run waits. Without notifications, the store polls the record every 50 ms. The store always
    /// polls if a pooler lends connections for one transaction. The store notifies other processes with either setting.
    ///
    /// # Default
    /// true
    pub fn listening(mut self, listening: bool) -> Self {
        self.1.listening = listening;
        self
    }

    /// Connects; with [`create`](Self::create) it makes what is missing. Of several processes that open at once, one
    /// migrates and the others wait for it.
    ///
    /// # Errors
    /// [`Schema`](StoreErrorKind::Schema): a name or the URL is refused, the table is missing or of another version, or a
    /// [pooler](PostgresStore#poolers) loses prepared statements.
    /// [`Denied`](StoreErrorKind::Denied): user, password, database or rights. [`Foreign`](StoreErrorKind::Foreign):
    /// the table is not ours. [`NotApplied`](StoreErrorKind::NotApplied): no connection.
    ///
    /// # Cancellation
    /// Dropping it leaves the tables as they were or wholly migrated.
    pub async fn open(self) -> Result<PostgresStore, StoreError> {
        super::open::open(self.0, self.1).await
    }
}

/// The options of a URL.
pub(super) fn parse(url: &str) -> Result<PgConnectOptions, StoreError> {
    let told = |what: &str| {
        let shown = idempotent_core::__private::url::masked(url);
        StoreError::new(StoreErrorKind::Schema).because(format!("store URL `{shown}` {what}"))
    };
    let refuse = |what: &str| told(&format!("{what}: give `postgres://USER:PASSWORD@HOST:PORT/DATABASE`"));
    let Some((scheme, rest)) = url.split_once("://") else { return Err(refuse("has no scheme")) };
    if !["postgres", "postgresql"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(refuse("has another scheme than `postgres`"));
    }
    let options = PgConnectOptions::from_str(&format!("postgres://{rest}"))
        .map_err(|error| refuse(&format!("cannot be read ({error})")))?;
    match tls(options.get_ssl_mode()).refusal(rest) {
        Some(what) => Err(told(&what)),
        None => Ok(options),
    }
}

fn tls(mode: PgSslMode) -> Tls {
    let verified = matches!(mode, PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    Tls {
        feature: "postgres-tls",
        built: cfg!(feature = "postgres-tls"),
        required: verified || matches!(mode, PgSslMode::Require),
        verified,
        full: "sslmode=verify-full",
        authority: &["sslrootcert", "ssl-root-cert", "ssl-ca"],
    }
}

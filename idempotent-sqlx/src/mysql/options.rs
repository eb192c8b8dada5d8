//! How a store is set up, and what is refused before the server is asked.
use std::str::FromStr;

use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::MySqlPool;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use super::MySqlStore;
use crate::plan::{Settings, Tls, server_builder};

/// Sets up a [`MySqlStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MySqlStoreBuilder(pub(super) Settings<MySqlPool>, pub(super) bool);

server_builder!(MySqlStoreBuilder);

impl MySqlStoreBuilder {
    pub(super) fn new(settings: Settings<MySqlPool>) -> Self {
        Self(settings, false)
    }

    /// The database (MySQL's word is also schema) of both tables, which has to be there. Of the same letters as a table's
    /// name.
    ///
    /// # Default
    /// That of the URL
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.0.schema = Some(name.into());
        self
    }

    /// For the tests of the statements for MySQL on a MariaDB.
    #[doc(hidden)]
    pub fn __as_on_mysql(mut self) -> Self {
        self.1 = true;
        self
    }

    /// Connects; with [`create`](Self::create) it makes what is missing. Of several processes that open at once, one
    /// migrates and the others wait for it.
    ///
    /// # Errors
    /// [`Schema`](StoreErrorKind::Schema): a name, the URL or the server's version is refused, the table is missing or
    /// of another version. [`Denied`](StoreErrorKind::Denied): user, password, database or rights.
    /// [`Foreign`](StoreErrorKind::Foreign): the table is not ours. [`NotApplied`](StoreErrorKind::NotApplied): no
    /// connection.
    ///
    /// # Cancellation
    /// Dropping it leaves the tables as they were or migrated as far as it came; opening again goes on from there.
    pub async fn open(self) -> Result<MySqlStore, StoreError> {
        super::open::open(self).await
    }
}

/// The options of a URL.
pub(super) fn parse(url: &str) -> Result<MySqlConnectOptions, StoreError> {
    let told = |what: &str| {
        let shown = idempotent_core::__private::url::masked(url);
        StoreError::new(StoreErrorKind::Schema).because(format!("store URL `{shown}` {what}"))
    };
    let refuse = |what: &str| told(&format!("{what}: give `mysql://USER:PASSWORD@HOST:PORT/DATABASE`"));
    let Some((scheme, rest)) = url.split_once("://") else { return Err(refuse("has no scheme")) };
    if !["mysql", "mariadb"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(refuse("has another scheme than `mysql` or `mariadb`"));
    }
    let options = MySqlConnectOptions::from_str(&format!("mysql://{rest}"))
        .map_err(|error| refuse(&format!("cannot be read ({error})")))?;
    if options.get_database().is_none() {
        return Err(refuse("names no database"));
    }
    match tls(options.get_ssl_mode()).refusal(rest) {
        Some(what) => Err(told(&what)),
        None => Ok(options),
    }
}

fn tls(mode: MySqlSslMode) -> Tls {
    let verified = matches!(mode, MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity);
    Tls {
        feature: "mysql-tls",
        built: cfg!(feature = "mysql-tls"),
        required: verified || matches!(mode, MySqlSslMode::Required),
        verified,
        full: "ssl-mode=VERIFY_IDENTITY",
        authority: &["sslca", "ssl-ca"],
    }
}

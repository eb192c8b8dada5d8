//! The options of a connection.
use std::fmt;
use std::str::FromStr;

use idempotent_core::__private::url::masked;
use idempotent_mq::SourceError;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::error::fatal;

/// The address and the options of a connection to PGMQ. A URL converts into options without further settings.
///
/// ```
/// use idempotent_pgmq::PgmqOptions;
///
/// let options = PgmqOptions::new("pgmq://app:secret@db.internal/shop?sslmode=verify-full").connections(8);
/// // `Debug` shows nothing of the URL, which may contain a password.
/// assert!(!format!("{options:?}").contains("internal"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct PgmqOptions {
    url: String,
    pub(crate) connections: u32,
}

const FORM: &str = "use `pgmq://USER:PASSWORD@HOST:PORT/DATABASE`, with percent-encoded parts";

impl PgmqOptions {
    /// Creates options with a URL: `pgmq://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE`. The schemes `postgres` and `postgresql` are
    /// equivalent. The parameters are those of PostgreSQL, such as `sslmode=verify-full` and `sslrootcert=FILE` for TLS.
    ///
    /// With the feature `tls`, connecting sets the default `CryptoProvider` of rustls to `ring`, unless the process has set one.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), connections: 4 }
    }

    /// Sets the maximum number of connections, at least 1. A source that listens for notifications has one more.
    ///
    /// # Default
    /// 4
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Parses the URL.
    ///
    /// # Errors
    /// The URL is invalid, requires TLS in a program without TLS, or names an authority that would not be used.
    pub(crate) fn parse(&self) -> Result<PgConnectOptions, SourceError> {
        let doing = || format!("parsing the URL `{}`", masked(&self.url));
        let known = ["pgmq", "postgres", "postgresql"];
        let rest = self.url.split_once("://").filter(|(scheme, _)| known.contains(scheme)).map(|(_, rest)| rest);
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else { return Err(fatal(&doing(), FORM)) };
        let options = PgConnectOptions::from_str(&format!("postgres://{rest}")).map_err(|_| fatal(&doing(), FORM))?;
        let mode = options.get_ssl_mode();
        let is_verified = matches!(mode, PgSslMode::VerifyCa | PgSslMode::VerifyFull);
        if !cfg!(feature = "tls") && (is_verified || matches!(mode, PgSslMode::Require)) {
            return Err(fatal(
                &doing(),
                "this program was built without TLS to PostgreSQL; enable the feature `pgmq-tls`",
            ));
        }
        if !is_verified && ["sslrootcert=", "ssl-root-cert=", "ssl-ca="].iter().any(|name| rest.contains(name)) {
            let remedy = "an authority is set, but the certificate is not verified; add `sslmode=verify-full`";
            return Err(fatal(&doing(), remedy));
        }
        // Where several are compiled in and none is selected, sqlx 0.9 panics at `sslmode=verify-ca`.
        #[cfg(feature = "tls")]
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        // The texts of statements are always the same, and PgBouncer rejects the other parameter.
        Ok(options.disable_statement_logging().extra_float_digits(None))
    }
}

impl<S: Into<String>> From<S> for PgmqOptions {
    fn from(url: S) -> Self {
        Self::new(url)
    }
}

/// Shows nothing of the URL.
impl fmt::Debug for PgmqOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgmqOptions").field("connections", &self.connections).finish_non_exhaustive()
    }
}

//! Validation of a URL before connecting.
use std::str::FromStr;

use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::server::{TlsSettings, select_cryptography, unparsed};

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
    let options = PgConnectOptions::from_str(&format!("postgres://{rest}")).map_err(|error| {
        refuse(&unparsed(&error, "sslmode", "disable, allow, prefer, require, verify-ca, verify-full"))
    })?;
    match tls(options.get_ssl_mode()).refusal(rest) {
        Some(what) => Err(told(&what)),
        None => {
            select_cryptography();
            Ok(options)
        }
    }
}

/// Returns the host, port and database, for errors.
pub(super) fn shown(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    match options.get_socket() {
        Some(socket) => format!("`{}:{}/{database}`", socket.display(), options.get_port()),
        None => format!("`{}:{}/{database}`", options.get_host(), options.get_port()),
    }
}

fn tls(mode: PgSslMode) -> TlsSettings {
    let verified = matches!(mode, PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    TlsSettings {
        feature: "postgres-tls",
        built: cfg!(feature = "postgres-tls"),
        required: verified || matches!(mode, PgSslMode::Require),
        verified,
        full: "sslmode=verify-full",
        authority: &["sslrootcert", "ssl-root-cert", "ssl-ca"],
    }
}

//! Validation of a URL before connecting.
use std::str::FromStr;

use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use crate::server::{TlsSettings, select_cryptography, unparsed};

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
    let options = MySqlConnectOptions::from_str(&format!("mysql://{rest}")).map_err(|error| {
        refuse(&unparsed(&error, "ssl-mode", "DISABLED, PREFERRED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY"))
    })?;
    if options.get_database().is_none() {
        return Err(refuse("names no database"));
    }
    match tls(options.get_ssl_mode()).refusal(rest) {
        Some(what) => Err(told(&what)),
        None => {
            select_cryptography();
            Ok(options)
        }
    }
}

fn tls(mode: MySqlSslMode) -> TlsSettings {
    let verified = matches!(mode, MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity);
    TlsSettings {
        feature: "mysql-tls",
        built: cfg!(feature = "mysql-tls"),
        required: verified || matches!(mode, MySqlSslMode::Required),
        verified,
        full: "ssl-mode=VERIFY_IDENTITY",
        authority: &["sslca", "ssl-ca"],
    }
}

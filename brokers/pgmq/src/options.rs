//! URLs of PGMQ, and the options of a connection.
use std::str::FromStr;

use idempotent_mq::{SourceError, UrlForm, UrlParameter};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// The form of the URLs of PGMQ. The scheme `postgres` is equivalent. The host may be the percent-encoded folder of a socket.
///
/// With the feature `tls`, connecting sets the default `CryptoProvider` of rustls to `ring`, unless the process has set one.
pub const URL_FORM: UrlForm = UrlForm {
    broker: "PGMQ",
    schemes: &["pgmq", "postgres", "postgresql"],
    tls: None,
    form: "pgmq://USER[:PASSWORD]@HOST[:PORT]/DATABASE",
    parameters: &[
        UrlParameter::new(
            "connections",
            "NUMBER",
            "the most connections, by default 4; a source that listens for notifications has one more",
        ),
        UrlParameter::new(
            "sslmode",
            "MODE",
            "`disable`, `prefer` (the default), `require`, `verify-ca` or `verify-full`",
        ),
        UrlParameter::new("sslrootcert", "FILE", "the certificate authority of the server"),
        UrlParameter::new("sslcert", "FILE", "the client's certificate"),
        UrlParameter::new("sslkey", "FILE", "the private key of the client's certificate"),
        UrlParameter::new("options", "TEXT", "settings of the session, such as `-c search_path=shop`"),
        UrlParameter::new("options[NAME]", "VALUE", "one setting of the session"),
    ],
};

/// The server: a URL of [this form](URL_FORM), or the options of the service's own connections or pool. With options,
/// a source or a handle opens up to 4 connections.
pub type Server = idempotent_mq::Server<PgConnectOptions>;

/// The default of `connections`.
const CONNECTIONS: usize = 4;

/// Returns the options of the client, and the maximum number of connections.
///
/// # Errors
/// `Fatal`: the URL is invalid, requires TLS in a program without TLS, or names an authority that would not be used.
pub(crate) fn client(server: &Server) -> Result<(PgConnectOptions, usize), SourceError> {
    let (options, connections) = match server {
        Server::Url(url) => of_url(url.as_str())?,
        Server::Client(options) => (options.clone(), CONNECTIONS),
    };
    // Where several are compiled in and none is selected, sqlx 0.9 panics at `sslmode=verify-ca`.
    #[cfg(feature = "tls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    // The texts of statements are always the same, and PgBouncer rejects the other parameter.
    Ok((options.disable_statement_logging().extra_float_digits(None), connections))
}

fn of_url(url: &str) -> Result<(PgConnectOptions, usize), SourceError> {
    let parsed = URL_FORM.parse(url)?;
    let refused = |rule: &str| Err(URL_FORM.error(url, rule).into());
    let connections = match parsed.parameter("connections").map(str::parse) {
        Some(Ok(number)) if number > 0 => number,
        Some(_) => return refused("`connections` is no number of at least 1"),
        None => CONNECTIONS,
    };
    // The client warns of a parameter that it does not know.
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let query: Vec<_> = query.split('&').filter(|part| !part.starts_with("connections=")).collect();
    let place = place.split_once("://").map_or(place, |(_, place)| place);
    let Ok(options) = PgConnectOptions::from_str(&format!("postgres://{place}?{}", query.join("&"))) else {
        return refused(&format!("use `{}`, with percent-encoded parts", URL_FORM.form));
    };
    let mode = options.get_ssl_mode();
    let is_verified = matches!(mode, PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    if !cfg!(feature = "tls") && (is_verified || matches!(mode, PgSslMode::Require)) {
        return refused("this program was built without TLS to PostgreSQL; enable the feature `pgmq-tls`");
    }
    if !is_verified && parsed.parameter("sslrootcert").is_some() {
        return refused("an authority is set, but the certificate is not verified; add `sslmode=verify-full`");
    }
    Ok((options, connections))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<usize, String> {
        let parsed = of_url(&format!("pgmq://app@localhost/shop?{query}"));
        parsed.map(|(_, connections)| connections).map_err(|error| error.to_string())
    }

    #[test]
    fn a_number_of_connections_is_at_least_one() {
        assert_eq!((parsed("connections=1"), parsed("")), (Ok(1), Ok(CONNECTIONS)));
        for wrong in ["connections=0", "connections=-1", "connections=many"] {
            assert!(parsed(wrong).unwrap_err().contains("at least 1"), "{wrong}");
        }
    }
}

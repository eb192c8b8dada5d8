//! URLs of NATS servers, and the options of a connection.
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use idempotent_mq::{ConnectionUrl, SourceError, UrlForm, UrlParameter};

use crate::error::fatal;

/// The form of the URLs of NATS. A user without a password is a token.
///
/// Connecting sets the default `CryptoProvider` of rustls to `ring`, unless the process has set one.
pub const URL_FORM: UrlForm = UrlForm {
    broker: "NATS JetStream",
    schemes: &["nats", "tls"],
    tls: Some("tls"),
    form: "nats://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]]",
    parameters: &[
        UrlParameter::new("credentials", "FILE", "the credentials of a user, as `nsc generate creds` writes them"),
        UrlParameter::new("nkey", "FILE", "the seed of a user's NKey, as `nk -gen user` writes it"),
        UrlParameter::new(
            "tls_ca",
            "FILE",
            "the certificate authority of the server, by default one of the operating system",
        ),
        UrlParameter::new("tls_certificate", "FILE", "the client's certificate, for a server that verifies clients"),
        UrlParameter::new("tls_key", "FILE", "the private key of the client's certificate"),
    ],
};

/// The servers: a URL of [this form](URL_FORM), or the options of the service's own clients with the addresses.
///
/// Each source, publisher and handle opens a connection of its own, because a message that the client cannot represent ends the
/// connection. It sets the callback for events, the interval of pings, the time limits of connecting and of requests, and reconnects
/// without a limit. The options must not contain `retry_on_initial_connect`: opening fails without a connection.
pub type Server = idempotent_mq::Server<(ConnectOptions, Vec<ServerAddr>)>;

/// The maximum time of a request. Calls that take longer are errors, and are repeated.
pub(crate) const REQUEST: Duration = Duration::from_secs(5);
/// The interval of pings, which detect a connection that is half open.
const PING: Duration = Duration::from_secs(10);

/// Parses a URL, or the usual list of whole URLs, whose users and parameters are those of the first one.
///
/// # Errors
/// `Fatal`: a URL is invalid, or the URLs have different schemes.
fn parse(url: &str) -> Result<(ConnectionUrl, Vec<ServerAddr>), SourceError> {
    let mut starts: Vec<usize> =
        URL_FORM.schemes.iter().flat_map(|scheme| url.match_indices(scheme)).map(|(at, _)| at).collect();
    starts.retain(|at| *at == 0 || url[..*at].trim_end().ends_with(','));
    starts.sort_unstable();
    let ends = starts.iter().skip(1).copied().chain([url.len()]);
    let parts = starts.iter().zip(ends).map(|(start, end)| url[*start..end].trim().trim_end_matches(','));
    let all: Vec<ConnectionUrl> = parts.map(|part| URL_FORM.parse(part)).collect::<Result<_, _>>()?;
    // Without any scheme, the whole text is no URL.
    let first = all.first().cloned().map_or_else(|| URL_FORM.parse(url), Ok)?;
    if all.iter().any(|other| other.scheme() != first.scheme()) {
        return Err(URL_FORM.error(url, "all servers need one scheme, `nats` or `tls`").into());
    }
    if first.parameter("tls_certificate").is_some() != first.parameter("tls_key").is_some() {
        return Err(URL_FORM.error(url, "set both `tls_certificate` and `tls_key`, or neither").into());
    }
    let hosts = all.iter().flat_map(ConnectionUrl::hosts);
    let addresses = hosts.map(|host| format!("{}://{host}", first.scheme()).parse());
    let addresses: std::io::Result<_> = addresses.collect();
    let addresses = addresses.map_err(|error| URL_FORM.error(url, error.to_string()))?;
    Ok((first, addresses))
}

/// Returns the options of a connection, and the addresses.
///
/// # Errors
/// `Fatal`: the URL is invalid, or names a file that cannot be read.
pub(crate) async fn client(server: &Server) -> Result<(ConnectOptions, Vec<ServerAddr>), SourceError> {
    let (options, addresses) = match server {
        Server::Url(url) => {
            let (url, addresses) = parse(url.as_str())?;
            (of_url(&url).await?, addresses)
        }
        Server::Client(client) => client.clone(),
    };
    // A client that gives up would end a publisher or a bucket for good.
    let options =
        options.connection_timeout(REQUEST).request_timeout(Some(REQUEST)).ping_interval(PING).max_reconnects(None);
    Ok((options, addresses))
}

/// Converts the options for the client.
///
/// # Errors
/// `Fatal`: a file with credentials or with a seed cannot be read.
async fn of_url(url: &ConnectionUrl) -> Result<ConnectOptions, SourceError> {
    let options = ConnectOptions::new().name("idempotent");
    let mut options = match url.user() {
        Some((user, Some(password))) => options.user_and_password(user.to_owned(), password.to_owned()),
        Some((token, None)) => options.token(token.to_owned()),
        None => options,
    };
    options = authenticated(options, url).await.map_err(|error| {
        let remedy = "pass the path of a file that `nsc generate creds` wrote, or of a seed that `nk -gen user` wrote";
        fatal("reading the credentials", remedy).with_cause(error)
    })?;
    if let Some(file) = url.parameter("tls_ca") {
        options = options.add_root_certificates(file.into());
    }
    if let (Some(certificate), Some(key)) = (url.parameter("tls_certificate"), url.parameter("tls_key")) {
        options = options.add_client_certificate(certificate.into(), key.into());
    }
    Ok(options)
}

async fn authenticated(mut options: ConnectOptions, url: &ConnectionUrl) -> std::io::Result<ConnectOptions> {
    if let Some(file) = url.parameter("credentials") {
        options = options.credentials_file(file).await?;
    }
    if let Some(file) = url.parameter("nkey") {
        let text = tokio::fs::read_to_string(file).await?;
        // The file may also contain the public key.
        let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU")).map(str::to_owned);
        options = options.nkey(seed.ok_or_else(|| std::io::Error::other("the file contains no seed of a user"))?);
    }
    Ok(options)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn several_servers_are_hosts_of_one_url_or_a_list_of_urls() {
        for (url, hosts) in [
            ("nats://ann:s%40@a,b:7?nkey=f", ["a:4222", "b:7"]),
            ("nats://ann:s%40@a,nats://ann:s%40@b:7", ["a:4222", "b:7"]),
            ("tls://ann:s%40@a?tls_ca=f, tls://b:7", ["a:4222", "b:7"]),
        ] {
            let (parsed, addresses) = parse(url).unwrap();
            let found: Vec<_> =
                addresses.iter().map(|address| format!("{}:{}", address.host(), address.port())).collect();
            assert_eq!((found, parsed.user()), (hosts.map(str::to_owned).to_vec(), Some(("ann", Some("s@")))), "{url}");
        }
        for url in ["nats://a,tls://b", "a:4222", "nats://a,nats://"] {
            assert!(parse(url).is_err(), "{url}");
        }
    }
}

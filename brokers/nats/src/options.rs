//! The options of a connection.
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;

/// The address and the options of a connection to NATS. A URL converts into options without further settings.
///
/// ```
/// use idempotent_nats::NatsOptions;
///
/// let options = NatsOptions::new("tls://nats.example.com").credentials("billing.creds").tls_ca("ca.pem");
/// // `Debug` shows nothing of the URL, which may contain a password.
/// assert!(!format!("{options:?}").contains("example"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct NatsOptions {
    pub(crate) url: String,
    credentials: Option<PathBuf>,
    nkey: Option<PathBuf>,
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
}

/// The maximum time of a request. Calls that take longer are errors, and are repeated.
pub(crate) const REQUEST: Duration = Duration::from_secs(5);
/// The interval of pings, which detect a connection that is half open.
const PING: Duration = Duration::from_secs(10);

impl NatsOptions {
    /// Creates options with a URL, or several separated by commas: `nats://[USER:PASSWORD@]HOST[:PORT]`, or `tls://` for TLS. A user
    /// without a password is a token. Characters such as `@` are percent-encoded.
    ///
    /// Connecting sets the default `CryptoProvider` of rustls to `ring`, unless the process has set one.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), credentials: None, nkey: None, ca: None, identity: None }
    }

    /// Sets the credentials file of a user, as `nsc generate creds` writes it.
    ///
    /// # Default
    /// The user in the URL, or none
    pub fn credentials(mut self, file: impl Into<PathBuf>) -> Self {
        self.credentials = Some(file.into());
        self
    }

    /// Sets the file with the seed of a user's NKey, as `nk -gen user` writes it.
    ///
    /// # Default
    /// The user in the URL, or none
    pub fn nkey(mut self, file: impl Into<PathBuf>) -> Self {
        self.nkey = Some(file.into());
        self
    }

    /// Sets the file of the certificate authority that signed the server's certificate.
    ///
    /// # Default
    /// The authorities of the operating system
    pub fn tls_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// Sets the files of the client's certificate and its private key, for a server that verifies clients.
    ///
    /// # Default
    /// None
    pub fn tls_identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Parses the URLs.
    ///
    /// # Errors
    /// A URL is invalid, or has no host.
    pub(crate) fn addresses(&self) -> Result<Vec<ServerAddr>, std::io::Error> {
        let addresses: Vec<ServerAddr> = self.url.split(',').map(|url| url.trim().parse()).collect::<Result<_, _>>()?;
        if addresses.iter().any(|address| address.host().is_empty()) {
            return Err(std::io::Error::other("a URL has no host"));
        }
        Ok(addresses)
    }

    /// Converts the options for the client. The client ignores a user in a URL.
    ///
    /// # Errors
    /// A file with credentials or with a seed cannot be read.
    pub(crate) async fn client(&self, addresses: &[ServerAddr]) -> std::io::Result<ConnectOptions> {
        let mut options = ConnectOptions::new()
            .name("idempotent")
            .connection_timeout(REQUEST)
            .request_timeout(Some(REQUEST))
            .ping_interval(PING);
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let named =
            addresses.iter().find_map(|address| Some((decoded(address.username()?), address.password().map(decoded))));
        options = match named {
            Some((user, Some(password))) => options.user_and_password(user, password),
            Some((token, None)) => options.token(token),
            None => options,
        };
        if let Some(file) = &self.credentials {
            options = options.credentials_file(file).await?;
        }
        if let Some(file) = &self.nkey {
            let seed = seed(&tokio::fs::read_to_string(file).await?).map(str::to_owned);
            options = options.nkey(seed.ok_or_else(|| std::io::Error::other("the file contains no seed of a user"))?);
        }
        if let Some(file) = &self.ca {
            options = options.add_root_certificates(file.clone());
        }
        if let Some((certificate, key)) = &self.identity {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options)
    }
}

/// Returns the seed of a user in the text of a file, which may also contain the public key.
fn seed(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| line.starts_with("SU"))
}

impl<S: Into<String>> From<S> for NatsOptions {
    fn from(url: S) -> Self {
        Self::new(url)
    }
}

/// Shows nothing of the URL.
impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions")
            .field("credentials", &self.credentials)
            .field("nkey", &self.nkey)
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}

//! TLS certificates. Server certificates are always verified.
use std::fmt;

use idempotent_core::{StoreError, StoreErrorKind};

/// TLS certificates and keys, in PEM.
#[derive(Clone, Default)]
pub(crate) struct TlsSettings {
    ca: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

const BEGINS: &[u8] = b"BEGIN CERTIFICATE";

/// A certificate or key, in a file or in memory.
#[derive(Clone)]
#[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "only with TLS can one be given"))]
pub(crate) enum PemSource {
    File(std::path::PathBuf),
    Text(Vec<u8>),
}

impl PemSource {
    fn read(self, what: &str) -> Result<Vec<u8>, StoreError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::File(path) => std::fs::read(&path).map_err(|e| {
                let text = format!("cannot read the {what} {}: {e}", path.display());
                StoreError::new(StoreErrorKind::Schema).because(text)
            }),
        }
    }
}

impl TlsSettings {
    /// Reads the certificates and keys from their files.
    ///
    /// # Errors
    /// `Schema`, with the file's name.
    pub(crate) fn read(ca: Option<PemSource>, client: Option<(PemSource, PemSource)>) -> Result<Self, StoreError> {
        let ca = ca.map(|pem| pem.read("CA certificate")).transpose()?;
        let client = match client {
            Some((certificate, key)) => Some((certificate.read("client certificate")?, key.read("client key")?)),
            None => None,
        };
        for pem in ca.iter().chain(client.iter().map(|(certificate, _)| certificate)) {
            if !pem.windows(BEGINS.len()).any(|part| part == BEGINS) {
                let text = "no certificate found; certificates must be in PEM format, `-----BEGIN CERTIFICATE-----`";
                return Err(StoreError::new(StoreErrorKind::Schema).because(text));
            }
        }
        Ok(Self { ca, client })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ca.is_none() && self.client.is_none()
    }

    #[cfg(feature = "tls")]
    pub(crate) fn client(&self, info: redis::ConnectionInfo) -> redis::RedisResult<redis::Client> {
        install_provider();
        let client_tls = self.client.clone();
        let client_tls = client_tls.map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
        redis::Client::build_with_tls(info, redis::TlsCertificates { client_tls, root_cert: self.ca.clone() })
    }

    /// Creates a client without TLS. Never called: without the feature, no URL enables TLS.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn client(&self, info: redis::ConnectionInfo) -> redis::RedisResult<redis::Client> {
        redis::Client::open(info)
    }
}

/// Selects the cryptography of rustls, unless the program has selected one. redis-rs uses the one that is installed for the process. If
/// several are compiled in and none is installed, rustls panics.
pub(crate) fn install_provider() {
    #[cfg(feature = "tls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings").field("ca", &self.ca.is_some()).field("client", &self.client.is_some()).finish()
    }
}

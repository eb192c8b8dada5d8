//! The factory of all Redis clients: credentials, database index and TLS.
use std::path::Path;
use std::sync::Arc;

use idempotent_core::{StoreError, StoreErrorKind};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::connection::address::{Credentials, ServerAddress};
use crate::connection::tls::TlsSettings;
use crate::connection::url::RedisUrl;
use crate::failure::CallFailure;

/// A factory for clients, shared by all connections of a store.
#[derive(Clone, Debug)]
pub(crate) struct ClientFactory(Arc<ClientSettings>);

#[derive(Debug)]
struct ClientSettings {
    credentials: Credentials,
    db: u32,
    tls: Option<TlsSettings>,
    /// The address, the certificates and the settings of the service's own client.
    own: Option<ConnectionInfo>,
}

impl ClientFactory {
    /// Returns the servers of a URL, or of the service's own client, and the factory for their clients.
    ///
    /// # Errors
    /// `Schema` if the URL is invalid, if it requires TLS but the feature is disabled, or if certificates are given without TLS
    /// or together with a client.
    pub(crate) fn open(
        url: &str,
        own: Option<&redis::Client>,
        tls: TlsSettings,
    ) -> Result<(RedisUrl, Self), StoreError> {
        let schema = |text: &str| Err(StoreError::new(StoreErrorKind::Schema).because(text));
        let url = own.map_or_else(|| RedisUrl::parse(url), RedisUrl::of)?;
        let tls = match (url.tls, cfg!(feature = "tls")) {
            _ if own.is_some() && !tls.is_empty() => {
                return schema("certificates are given beside a client; create the client with them");
            }
            (true, true) => Some(tls),
            (true, false) => {
                return schema(
                    "`rediss://` requires TLS support; enable the feature `tls` of idempotent-redis (`redis-tls` of \
                     idempotent-rs)",
                );
            }
            (false, _) if !tls.is_empty() => {
                return schema("certificates are given, but the URL does not use TLS; use `rediss://…`");
            }
            (false, _) => None,
        };
        let own = own.map(|client| client.get_connection_info().clone());
        let settings = ClientSettings { credentials: url.credentials.clone(), db: url.db, tls, own };
        Ok((url, Self(Arc::new(settings))))
    }

    /// Returns a factory for the sentinels of these servers. Sentinels have their own users and no databases.
    pub(crate) fn of_sentinels(&self, credentials: Credentials) -> Self {
        Self(Arc::new(ClientSettings { credentials, db: 0, tls: self.0.tls.clone(), own: None }))
    }

    /// Creates a client for the server at this address, without connecting.
    ///
    /// # Errors
    /// `Schema` if a certificate cannot be used.
    pub(crate) fn client(&self, at: &ServerAddress) -> Result<redis::Client, CallFailure> {
        let (host, port) = (at.host.to_string(), at.port);
        self.make(match &self.0.tls {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        })
    }

    /// Creates a client for a Unix socket; see [`client`](Self::client).
    pub(crate) fn socket(&self, path: &Path) -> Result<redis::Client, CallFailure> {
        self.make(ConnectionAddr::Unix(path.to_owned()))
    }

    fn make(&self, addr: ConnectionAddr) -> Result<redis::Client, CallFailure> {
        let ClientSettings { credentials, db, tls, own } = &*self.0;
        let info =
            own.clone().map_or_else(|| addr.into_connection_info(), Ok).map_err(|e| CallFailure::from_settings(&e))?;
        // The handshake has no optional parts, because the server sees it before the password is accepted.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        let mut settings = settings.set_db(i64::from(*db));
        if let Some(user) = &credentials.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &credentials.password {
            settings = settings.set_password(password);
        }
        let info = info.set_redis_settings(settings);
        match tls {
            Some(tls) => tls.client(info),
            None => {
                crate::connection::tls::install_provider();
                redis::Client::open(info)
            }
        }
        .map_err(|e| CallFailure::from_settings(&e))
    }

    /// Returns the user name that the server sees.
    pub(crate) fn user(&self) -> &str {
        self.0.credentials.user.as_deref().unwrap_or("default")
    }

    pub(crate) fn db(&self) -> u32 {
        self.0.db
    }
}

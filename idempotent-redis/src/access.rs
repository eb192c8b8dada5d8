//! How servers are asked: who asks, for which database, and whether by TLS. The one place that makes clients.
use std::fmt;
use std::sync::Arc;

use idempotent_core::{StoreError, StoreErrorKind};
use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion};

use crate::failure::Failure;
use crate::tls::Tls;
use crate::url::{Address, Url};

/// Who asks.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// Shared by all connections of a store.
#[derive(Clone, Debug)]
pub(crate) struct Access(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    credentials: Credentials,
    db: u32,
    tls: Option<Tls>,
}

impl Access {
    /// # Errors
    /// Where the URL asks for TLS that is not built in, or there are certificates and no TLS.
    pub(crate) fn new(url: &Url, tls: Tls) -> Result<Self, StoreError> {
        let schema = |text: &str| Err(StoreError::new(StoreErrorKind::Schema).because(text));
        let tls = match (url.tls, cfg!(feature = "tls")) {
            (true, true) => Some(tls),
            (true, false) => {
                return schema(
                    "`rediss://` needs the feature `tls` of idempotent-redis, which is `redis-tls` of idempotent-rs, \
                     and it is off",
                );
            }
            (false, _) if !tls.is_empty() => {
                return schema("certificates are given, but the url asks for no TLS: it is `rediss://…`");
            }
            (false, _) => None,
        };
        Ok(Self(Arc::new(Inner { credentials: url.credentials.clone(), db: url.db, tls })))
    }

    /// A client for one server; nothing is connected yet.
    ///
    /// # Errors
    /// `Schema` where a certificate cannot be used.
    pub(crate) fn client(&self, address: &Address) -> Result<redis::Client, Failure> {
        let Inner { credentials, db, tls } = &*self.0;
        let schema = |e: redis::RedisError| Failure::new(StoreErrorKind::Schema, e.to_string());
        let addr = match address {
            Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
            Address::Tcp { host, port } if tls.is_some() => {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
            Address::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
        };
        let info = addr.into_connection_info().map_err(schema)?;
        // Nothing that could be left out goes with the first words: they are said before the password is accepted.
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
            None => redis::Client::open(info),
        }
        .map_err(schema)
    }

    /// As whom the server knows us.
    pub(crate) fn user(&self) -> &str {
        self.0.credentials.user.as_deref().unwrap_or("default")
    }

    pub(crate) fn db(&self) -> u32 {
        self.0.db
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        f.debug_struct("Credentials").field("user", &self.user).field("password", &password).finish()
    }
}

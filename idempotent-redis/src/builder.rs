//! How a store is set up.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Clock, StoreError, StoreErrorKind, SystemClock};

use crate::RedisStore;
use crate::access::Access;
use crate::cache::{Cache, CacheOptions};
use crate::failure::Failure;
use crate::hub::Hub;
use crate::lane::Lane;
use crate::link::{Link, Patience, Target};
use crate::script::{Dialect, Scripts};
use crate::startup::{self, Wanted};
use crate::store::Inner;
use crate::tls::{Pem, Tls};
use crate::topology::Topology;
use crate::url::{Address, Place, Url};

/// Sets up a [`RedisStore`].
#[must_use]
pub struct RedisStoreBuilder {
    url: String,
    cache: Option<CacheOptions>,
    clock: Arc<dyn Clock>,
    patience: Patience,
    edit: Option<Arc<dyn Fn(&str) -> String + Send + Sync>>,
    plain: bool,
    namespace: String,
    allow_eviction: bool,
    ca: Option<Pem>,
    client: Option<(Pem, Pem)>,
}

impl RedisStoreBuilder {
    pub(crate) fn new(url: String) -> Self {
        let patience = Patience { connect: Duration::from_secs(2), response: Duration::from_secs(2) };
        Self {
            url,
            cache: Some(CacheOptions::default()),
            clock: Arc::new(SystemClock::new()),
            patience,
            edit: None,
            plain: false,
            namespace: "idempotent".to_owned(),
            allow_eviction: false,
            ca: None,
            client: None,
        }
    }

    /// How many consumed keys this process keeps in mind, so that a duplicate of one costs no command; `None` for none.
    ///
    /// # Default
    /// [`CacheOptions::default`]
    pub fn cache(mut self, options: impl Into<Option<CacheOptions>>) -> Self {
        self.cache = options.into();
        self
    }

    /// What ages of cached keys are measured with. Records' times are the server's, whatever this says.
    ///
    /// # Default
    /// [`SystemClock`]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// How long to wait for a connection.
    ///
    /// # Default
    /// 2 s
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.patience.connect = timeout;
        self
    }

    /// How long to wait for an answer before the connection is given up and the call is ambiguous.
    ///
    /// # Default
    /// 2 s
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.patience.response = timeout;
        self
    }

    /// The executor's namespace: whose epoch is checked, and which the server must let us write to.
    ///
    /// # Default
    /// `idempotent`
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Whether to use a server that evicts keys when its memory is full. It then loses leases first, and a key whose
    /// record is gone runs again: no level is promised.
    ///
    /// # Default
    /// `false`: [`connect`](Self::connect) fails
    pub fn allow_eviction(mut self, allow: bool) -> Self {
        self.allow_eviction = allow;
        self
    }

    /// For tests of the scripts' guards only.
    #[doc(hidden)]
    pub fn edit_scripts(mut self, edit: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.edit = Some(Arc::new(edit));
        self
    }

    /// For tests of the form of the scripts that Redis 6.2 takes.
    #[doc(hidden)]
    pub fn plain_scripts(mut self) -> Self {
        self.plain = true;
        self
    }

    /// Connects, and checks the servers as [`RedisStore::check`] does; what is only worth a warning is an event of
    /// `tracing`.
    ///
    /// # Errors
    /// `NotApplied` if the server cannot be reached, `Denied` if it does not let us in or lacks a right, `Schema` for
    /// a URL that cannot be or a server that must not be used. The text says what to do, and shows no password.
    ///
    /// # Cancellation
    /// Nothing is left behind but, perhaps, the namespace's epoch.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let url = Url::parse(&self.url)?;
        let access = Access::new(&url, Tls::read(self.ca, self.client)?)?;
        let hub = Arc::new(Hub::new(Cache::new(self.cache, self.clock)));
        let wanted = Wanted {
            namespace: self.namespace,
            user: access.user().to_owned(),
            db: access.db(),
            allow_eviction: self.allow_eviction,
        };
        let Place::Single { address } = url.place else {
            return Err(StoreError::new(StoreErrorKind::Schema).because("this version has no Sentinel and no Cluster"));
        };
        let link = Link::new(Box::new(Single { address, access }), self.patience, hub.clone());
        let looked = startup::look(&link, &wanted).await?;
        let dialect = if self.plain { Dialect::Plain } else { looked.dialect };
        let edit = self.edit.unwrap_or_else(|| Arc::new(str::to_owned));
        let scripts = Scripts::new(dialect, |text| edit(text));
        let topology = Topology::One(Lane::new(link, scripts, true));
        let store = RedisStore(Arc::new(Inner { topology, hub, wanted, evicted: looked.evicted.unwrap_or_default() }));
        store.judge(looked).await?;
        Ok(store)
    }
}

/// Certificates.
#[cfg(feature = "tls")]
impl RedisStoreBuilder {
    /// The authority, in PEM, that signed the servers' certificates; instead of those that the system trusts.
    /// Certificates are always verified.
    ///
    /// # Default
    /// The system's authorities
    pub fn ca_file(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.ca = Some(Pem::File(path.into()));
        self
    }

    /// As [`ca_file`](Self::ca_file), without a file.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(Pem::Text(pem.into()));
        self
    }

    /// What to show to servers that ask clients for a certificate: the files of the certificate, with its chain, and
    /// of its key, both in PEM.
    ///
    /// # Default
    /// None
    pub fn client_certificate(
        mut self,
        certificate: impl Into<std::path::PathBuf>,
        key: impl Into<std::path::PathBuf>,
    ) -> Self {
        self.client = Some((Pem::File(certificate.into()), Pem::File(key.into())));
        self
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = idempotent_core::__url::masked(&self.url);
        f.debug_struct("RedisStoreBuilder").field("url", &url).field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// One server, by its address.
#[derive(Debug)]
struct Single {
    address: Address,
    access: Access,
}

#[async_trait]
impl Target for Single {
    async fn client(&self) -> Result<redis::Client, Failure> {
        self.access.client(&self.address)
    }

    fn name(&self) -> String {
        self.address.to_string()
    }
}

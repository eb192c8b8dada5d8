//! Builder of a [`RedisStore`].
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use idempotent_core::{Clock, StoreError, SystemClock};

use crate::RedisStore;
use crate::batching::batcher::{CallBatcher, MAX_WAITING_FLUSHES};
use crate::batching::flush::SendOptions;
use crate::cache::{CacheOptions, ConsumedCache};
use crate::connection::address::Credentials;
use crate::connection::client::ClientFactory;
use crate::connection::notifications::NotificationHub;
use crate::connection::tls::{PemSource, TlsSettings};
use crate::connection::url::{ServerEndpoint, ServerLocation};
use crate::connection::{ConnectTarget, Connection, ConnectionTimeouts};
use crate::durability::{Counters, Durability};
use crate::scripts::{self, Dialect};
use crate::startup::{self, ServerReport, StartupChecks};
use crate::store::StoreInner;
use crate::topology::cluster::{ClusterRouter, NodeFactory};
use crate::topology::sentinel::SentinelTarget;
use crate::topology::{SingleServer, Topology};

/// A function that edits the text of a script.
type ScriptEdit = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// A builder for a [`RedisStore`].
#[derive(Clone)]
#[must_use]
pub struct RedisStoreBuilder {
    url: String,
    own: Option<redis::Client>,
    cache: Option<CacheOptions>,
    clock: Arc<dyn Clock>,
    timeouts: ConnectionTimeouts,
    durability: Durability,
    sentinel_login: Credentials,
    edit: Option<ScriptEdit>,
    plain: bool,
    compares_natively: Option<bool>,
    namespace: String,
    allow_eviction: bool,
    read_only: bool,
    ca: Option<PemSource>,
    client: Option<(PemSource, PemSource)>,
}

impl RedisStoreBuilder {
    pub(crate) fn new(url: String) -> Self {
        let timeouts = ConnectionTimeouts { connect: Duration::from_secs(2), response: Duration::from_secs(2) };
        Self {
            url,
            own: None,
            cache: Some(CacheOptions::default()),
            clock: Arc::new(SystemClock::new()),
            timeouts,
            durability: Durability::Primary,
            sentinel_login: Credentials::default(),
            edit: None,
            plain: false,
            compares_natively: None,
            namespace: "idempotent".to_owned(),
            allow_eviction: false,
            read_only: false,
            ca: None,
            client: None,
        }
    }

    pub(crate) fn on_client(client: redis::Client) -> Self {
        Self { own: Some(client), ..Self::new(String::new()) }
    }

    /// Sets how many consumed keys this process caches, so that their duplicates cost no command. `None` disables the
    /// cache.
    ///
    /// # Default
    /// [`CacheOptions::default`]
    pub fn cache(mut self, options: impl Into<Option<CacheOptions>>) -> Self {
        self.cache = options.into();
        self
    }

    /// Sets the clock that measures the age of cached keys. Record times always use the server's clock.
    ///
    /// # Default
    /// [`SystemClock`]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the timeout for opening a connection.
    ///
    /// # Default
    /// 2 s
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// Sets how long to wait for a reply. After this time the connection is closed and the call fails as ambiguous.
    ///
    /// # Default
    /// 2 s
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.response = timeout;
        self
    }

    /// Sets the replication that claims and completions wait for, besides the primary's own acknowledgement.
    ///
    /// If too few replicas acknowledge a claim in time, the claim is released and fails as not applied. A completion
    /// always remains valid, because the handler has run: the store counts it ([`RedisStore::counts`]) and logs a warning.
    /// Renewals and releases do not wait.
    ///
    /// Waiting blocks the connection, and with it all calls to the same server, for up to twice the `timeout`: at most
    /// two batches wait at a time. Keep the timeout well below a tenth of the leases.
    ///
    /// # Default
    /// [`Durability::Primary`]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the credentials used to authenticate with the sentinels of `redis+sentinel://`. The user and password in
    /// the URL are used for the servers.
    ///
    /// # Default
    /// No authentication
    pub fn sentinel_credentials(mut self, user: Option<&str>, password: &str) -> Self {
        self.sentinel_login = Credentials { user: user.map(str::to_owned), password: Some(password.to_owned()) };
        self
    }

    /// Sets the executor's namespace. The store checks the epoch of this namespace and requires write access to its
    /// keys.
    ///
    /// # Default
    /// `idempotent`
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets whether the store may use a server that evicts keys when its memory is full.
    ///
    /// Such a server evicts leases first, and a key whose record was evicted runs again: no guarantee level holds.
    ///
    /// # Default
    /// `false`: [`connect`](Self::connect) fails
    pub fn allow_eviction(mut self, allow: bool) -> Self {
        self.allow_eviction = allow;
        self
    }

    /// Sets whether the store only reads, for tools that inspect records. The user then needs no permission to write.
    ///
    /// [`connect`](Self::connect) sends no command that writes, and accepts a server that evicts keys. It still refuses a
    /// server that is too old, and a namespace of another protocol. Each method that writes fails as
    /// [`Denied`](idempotent_core::StoreErrorKind::Denied) before a command is sent. A wait for a run polls the record.
    ///
    /// # Default
    /// `false`
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets a function that edits the scripts. For tests of the scripts' guards only.
    #[doc(hidden)]
    pub fn edit_scripts(mut self, edit: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.edit = Some(Arc::new(edit));
        self
    }

    /// Uses the scripts for Redis 6.2. For tests only.
    #[doc(hidden)]
    pub fn plain_scripts(mut self) -> Self {
        self.plain = true;
        self
    }

    /// Sets whether completions use `SET … IFEQ`, whatever the server's version is. For tests only.
    #[doc(hidden)]
    pub fn native_comparison(mut self, is_used: bool) -> Self {
        self.compares_natively = Some(is_used);
        self
    }

    /// Connects and checks the servers as [`Health::check`](idempotent_core::store::Health::check) does. Warnings are
    /// emitted as `tracing` events. Writes the namespace's epoch key if it is missing, except with
    /// [`read_only`](Self::read_only).
    ///
    /// # Errors
    /// - `NotApplied`: a server cannot be reached.
    /// - `Denied`: a server rejects the credentials, or the user lacks a permission.
    /// - `Schema`: the URL is invalid, or a server must not be used.
    ///
    /// The error text names the remedy and contains no password.
    ///
    /// # Cancellation
    /// Dropping the future leaves nothing on the servers, except perhaps the namespace's epoch key.
    pub async fn connect(mut self) -> Result<RedisStore, StoreError> {
        let reopen = self.clone();
        let tls = TlsSettings::read(self.ca.take(), self.client.take())?;
        let (url, access) = ClientFactory::open(&self.url, self.own.as_ref(), tls)?;
        let checks = self.checks(&url.location, &access);
        let counters = Arc::new(Counters::default());
        let hub = Arc::new(NotificationHub::new(ConsumedCache::new(self.cache, self.clock.clone())));
        let timeouts = ConnectionTimeouts {
            response: self.timeouts.response + self.durability.extra_timeout() * MAX_WAITING_FLUSHES,
            ..self.timeouts
        };
        let connection = |target: Box<dyn ConnectTarget>| Connection::new(target, timeouts, hub.clone());
        let mut reports = Vec::new();
        let topology = match url.location {
            ServerLocation::Single { server } => {
                let connection = connection(Box::new(SingleServer { server, access }));
                reports.push(startup::inspect(&connection, &checks).await?);
                Topology::Single(CallBatcher::new(connection, self.options(&reports[0], true)))
            }
            ServerLocation::Sentinel { sentinels, primary } => {
                let login = access.of_sentinels(self.sentinel_login.clone());
                let connection =
                    connection(Box::new(SentinelTarget::new(sentinels, primary, login, access, timeouts.connect)));
                reports.push(startup::inspect(&connection, &checks).await?);
                Topology::Sentinel(CallBatcher::new(connection, self.options(&reports[0], true)))
            }
            ServerLocation::Cluster { nodes } => {
                let seeds = nodes.iter().map(|node| {
                    connection(Box::new(SingleServer {
                        server: ServerEndpoint::Tcp(node.clone()),
                        access: access.clone(),
                    }))
                });
                // The keys of a node are in several slots, and a script must not use keys of more than one slot.
                let options = self.options(&startup::first_report(seeds, &checks).await?, false);
                let factory = NodeFactory { access, timeouts, hub: hub.clone(), options };
                let cluster = Arc::new(ClusterRouter::connect(factory, nodes, counters.clone()).await?);
                for batcher in cluster.batchers(false).await? {
                    reports.push(startup::inspect(batcher.connection(), &checks).await?);
                }
                Topology::Cluster(cluster)
            }
        };
        for batcher in topology.batchers(false).await? {
            // Fails now instead of at the first claim if the server cannot wait for its disk.
            if let Some(wait) = self.durability.disk_probe().filter(|_| !self.read_only) {
                let why = "Durability::Disk requires Redis 7.2 and an append-only file; set `appendonly yes`";
                batcher.connection().send(&wait).await.map_err(|failure| failure.because(why))?;
            }
        }
        let evicted = reports.iter().filter_map(|reports| reports.evicted).sum();
        let inner = StoreInner { topology, hub, durability: self.durability, counters, checks, evicted, reopen };
        let store = RedisStore(Arc::new(inner));
        store.judge(reports).await?;
        Ok(store)
    }

    fn checks(&self, location: &ServerLocation, access: &ClientFactory) -> StartupChecks {
        let mut more = Vec::new();
        if access.db() != 0 {
            more.push("select");
        }
        match location {
            ServerLocation::Single { .. } => {}
            ServerLocation::Sentinel { .. } => more.push("role"),
            ServerLocation::Cluster { .. } => more.extend(["asking", "cluster|info", "cluster|slots"]),
        }
        more.extend(self.durability.command_name().filter(|_| !self.read_only));
        let (namespace, user) = (self.namespace.clone(), access.user().to_owned());
        let replicas = self.durability.replicas();
        StartupChecks {
            namespace,
            user,
            more,
            allow_eviction: self.allow_eviction,
            replicas,
            read_only: self.read_only,
        }
    }

    fn options(&self, report: &ServerReport, joins: bool) -> SendOptions {
        let dialect = if self.plain { Dialect::Plain } else { report.dialect };
        // A test that edits the scripts needs them.
        let is_edited = self.edit.is_some() || self.plain;
        let compares_natively = self.compares_natively.unwrap_or(report.compares_natively && !is_edited);
        let edit = self.edit.clone().unwrap_or_else(|| Arc::new(str::to_owned));
        SendOptions {
            scripts: scripts::load(dialect, |text| edit(text)),
            joins,
            durability: self.durability,
            compares_natively: Arc::new(AtomicBool::new(compares_natively)),
        }
    }
}

/// TLS certificates.
#[cfg(feature = "tls")]
impl RedisStoreBuilder {
    /// Sets the PEM file with the certificate authority that signed the servers' certificates. The file replaces the
    /// system's trusted authorities. Certificates are always verified.
    ///
    /// # Default
    /// The system's authorities
    pub fn ca_file(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.ca = Some(PemSource::File(path.into()));
        self
    }

    /// Sets the certificate authority from PEM bytes instead of a file; see [`ca_file`](Self::ca_file).
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(PemSource::Text(pem.into()));
        self
    }

    /// Sets the client certificate for servers that require one: the PEM files of the certificate chain and of its key.
    ///
    /// # Default
    /// No client certificate
    pub fn client_certificate(
        mut self,
        certificate: impl Into<std::path::PathBuf>,
        key: impl Into<std::path::PathBuf>,
    ) -> Self {
        self.client = Some((PemSource::File(certificate.into()), PemSource::File(key.into())));
        self
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = idempotent_core::__private::url::masked(&self.url);
        f.debug_struct("RedisStoreBuilder").field("url", &url).field("cache", &self.cache).finish_non_exhaustive()
    }
}

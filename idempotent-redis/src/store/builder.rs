//! How a store is set up.
use std::fmt;
use std::sync::Arc;
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
use crate::connection::url::{RedisUrl, ServerEndpoint, ServerLocation};
use crate::connection::{ConnectTarget, Connection, ConnectionTimeouts};
use crate::durability::{Counters, Durability};
use crate::scripts::{Dialect, ScriptSet};
use crate::startup::{self, StartupChecks};
use crate::store::StoreInner;
use crate::topology::Topology;
use crate::topology::cluster::{ClusterRouter, NodeFactory};
use crate::topology::sentinel::SentinelTarget;
use crate::topology::single::SingleServer;

/// Changes a script's text.
type ScriptEdit = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Sets up a [`RedisStore`].
#[derive(Clone)]
#[must_use]
pub struct RedisStoreBuilder {
    url: String,
    cache: Option<CacheOptions>,
    clock: Arc<dyn Clock>,
    timeouts: ConnectionTimeouts,
    durability: Durability,
    sentinel_login: Credentials,
    edit: Option<ScriptEdit>,
    plain: bool,
    namespace: String,
    allow_eviction: bool,
    ca: Option<PemSource>,
    client: Option<(PemSource, PemSource)>,
}

impl RedisStoreBuilder {
    pub(crate) fn new(url: String) -> Self {
        let timeouts = ConnectionTimeouts { connect: Duration::from_secs(2), response: Duration::from_secs(2) };
        Self {
            url,
            cache: Some(CacheOptions::default()),
            clock: Arc::new(SystemClock::new()),
            timeouts,
            durability: Durability::Primary,
            sentinel_login: Credentials::default(),
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
        self.timeouts.connect = timeout;
        self
    }

    /// How long to wait for an answer before the connection is given up and the call is ambiguous.
    ///
    /// # Default
    /// 2 s
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.response = timeout;
        self
    }

    /// What a claim and a completion wait for besides the primary's own answer.
    ///
    /// A claim that too few replicas have in time is given back and refused as not applied. A completion stands
    /// whatever the replicas say, since the handler has run: it is counted ([`RedisStore::counts`]) and warned of.
    /// Renewals and releases do not wait. The wait holds up the connection, and with it all calls for the same server:
    /// up to twice the `timeout`, since two trips are under way at most, where replicas are slow. Keep it well below a tenth of the leases.
    ///
    /// # Default
    /// [`Durability::Primary`]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Who we are to the sentinels of `redis+sentinel://`; the user and the password in the URL are for the servers.
    ///
    /// # Default
    /// Nobody in particular
    pub fn sentinel_credentials(mut self, user: Option<&str>, password: &str) -> Self {
        self.sentinel_login = Credentials { user: user.map(str::to_owned), password: Some(password.to_owned()) };
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
    pub async fn connect(mut self) -> Result<RedisStore, StoreError> {
        let reopen = self.clone();
        let url = RedisUrl::parse(&self.url)?;
        let access = ClientFactory::new(&url, TlsSettings::read(self.ca.take(), self.client.take())?)?;
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
                Topology::Single(CallBatcher::new(connection, self.options(reports[0].dialect, true)))
            }
            ServerLocation::Sentinel { sentinels, primary } => {
                let login = access.of_sentinels(self.sentinel_login.clone());
                let connection =
                    connection(Box::new(SentinelTarget::new(sentinels, primary, login, access, timeouts.connect)));
                reports.push(startup::inspect(&connection, &checks).await?);
                Topology::Sentinel(CallBatcher::new(connection, self.options(reports[0].dialect, true)))
            }
            ServerLocation::Cluster { nodes } => {
                let seeds = nodes.iter().map(|node| {
                    connection(Box::new(SingleServer {
                        server: ServerEndpoint::Tcp(node.clone()),
                        access: access.clone(),
                    }))
                });
                // Keys of one node lie in several slots, which no script may name together.
                let options = self.options(startup::dialect(seeds, &checks).await?, false);
                let factory = NodeFactory { access, timeouts, hub: hub.clone(), options };
                let cluster = Arc::new(ClusterRouter::connect(factory, nodes, counters.clone()).await?);
                for batcher in cluster.batchers(false).await? {
                    reports.push(startup::inspect(batcher.connection(), &checks).await?);
                }
                Topology::Cluster(cluster)
            }
        };
        for batcher in topology.batchers(false).await? {
            // What cannot be done at all is not found out by the first claim.
            if let Some(wait) = self.durability.disk_probe() {
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
        more.extend(self.durability.command_name());
        let (namespace, user) = (self.namespace.clone(), access.user().to_owned());
        let replicas = self.durability.replicas();
        StartupChecks { namespace, user, more, allow_eviction: self.allow_eviction, replicas }
    }

    fn options(&self, dialect: Dialect, joins: bool) -> SendOptions {
        let dialect = if self.plain { Dialect::Plain } else { dialect };
        let edit = self.edit.clone().unwrap_or_else(|| Arc::new(str::to_owned));
        SendOptions { scripts: ScriptSet::new(dialect, |text| edit(text)), joins, durability: self.durability }
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
        self.ca = Some(PemSource::File(path.into()));
        self
    }

    /// As [`ca_file`](Self::ca_file), without a file.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(PemSource::Text(pem.into()));
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
        self.client = Some((PemSource::File(certificate.into()), PemSource::File(key.into())));
        self
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = idempotent_core::__url::masked(&self.url);
        f.debug_struct("RedisStoreBuilder").field("url", &url).field("cache", &self.cache).finish_non_exhaustive()
    }
}

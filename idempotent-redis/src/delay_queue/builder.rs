//! Builder of a [`DelayQueue`].
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::store::{HealthFinding, HealthReport};
use idempotent_core::{StoreError, SystemClock};
use idempotent_mq::DelayError;
use redis::Cmd;

use super::message::refuse;
use super::queue::{DelayQueue, QueueSettings};
use super::replies::delay_error;
use super::servers::QueueServers;
use crate::batching::batcher::CallBatcher;
use crate::batching::flush::SendOptions;
use crate::cache::ConsumedCache;
use crate::connection::address::Credentials;
use crate::connection::client::ClientFactory;
use crate::connection::notifications::NotificationHub;
use crate::connection::tls::TlsSettings;
use crate::connection::url::ServerLocation;
use crate::connection::{ConnectTarget, Connection, ConnectionTimeouts, text};
use crate::durability::{Counters, Durability};
use crate::scripts::Dialect;
use crate::startup::server_info::{ServerInfo, ServerVersion};
use crate::startup::{self, ServerFindings};
use crate::topology::cluster::{ClusterRouter, NodeFactory};
use crate::topology::sentinel::SentinelTarget;
use crate::topology::{SingleServer, Topology};

/// The servers of a delay queue: a URL, or the service's own client of one server.
pub type Server = idempotent_mq::Server<redis::Client>;

/// A builder for a [`DelayQueue`].
#[must_use]
pub struct DelayQueueBuilder {
    server: Server,
    topic: String,
    namespace: String,
    settings: QueueSettings,
    timeouts: ConnectionTimeouts,
    sentinel_login: Credentials,
    allow_eviction: bool,
    edit: Arc<dyn Fn(&str) -> String + Send + Sync>,
}

/// Maximum number of slots of a topic, because a receiver tracks each slot.
const MAX_SLOTS: u16 = 1_024;
/// Maximum visibility timeout. Longer deliveries should be extended.
const LONGEST_VISIBILITY: Duration = Duration::from_secs(7 * 86_400);

impl DelayQueueBuilder {
    pub(crate) fn new(server: Server, topic: String) -> Self {
        Self {
            server,
            topic,
            namespace: "idempotent".to_owned(),
            settings: QueueSettings { slots: 1, visibility: Duration::from_secs(30), max_retries: 16 },
            timeouts: ConnectionTimeouts { connect: Duration::from_secs(2), response: Duration::from_secs(2) },
            sentinel_login: Credentials::default(),
            allow_eviction: false,
            edit: Arc::new(str::to_owned),
        }
    }

    /// Sets the number of slots of a topic, 1 to 1,024. A cluster distributes the slots over its nodes.
    ///
    /// Order, ids and merging apply within a slot. All producers and consumers of a topic must use the same number.
    /// Drain the topic before you change it.
    ///
    /// # Default
    /// 1
    pub fn slots(mut self, slots: u16) -> Self {
        self.settings.slots = slots;
        self
    }

    /// Sets the visibility timeout, 1 ms to 7 days. A delivery that is not settled within this time is redelivered,
    /// which counts as a retry.
    ///
    /// # Default
    /// 30 s
    pub fn visibility(mut self, time: Duration) -> Self {
        self.settings.visibility = time;
        self
    }

    /// Sets the maximum number of retries before a message becomes a dead letter. Rollbacks and expired deliveries
    /// count as retries. Retries by a [`Consumer`](idempotent_mq::Consumer) count in the consumer, not here.
    ///
    /// # Default
    /// 16, i.e. 17 deliveries
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.settings.max_retries = retries;
        self
    }

    /// Sets the prefix of all keys, before a colon.
    ///
    /// # Default
    /// `idempotent`
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
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

    /// Sets the credentials used to authenticate with the sentinels of `redis+sentinel://`. The user and password in
    /// the URL are used for the servers.
    ///
    /// # Default
    /// No authentication
    pub fn sentinel_credentials(mut self, user: Option<&str>, password: &str) -> Self {
        self.sentinel_login = Credentials { user: user.map(str::to_owned), password: Some(password.to_owned()) };
        self
    }

    /// Sets whether the queue may use a server that evicts keys when its memory is full. Such a server loses messages.
    ///
    /// # Default
    /// `false`: [`connect`](Self::connect) fails
    pub fn allow_eviction(mut self, allow: bool) -> Self {
        self.allow_eviction = allow;
        self
    }

    /// Sets a function that edits the scripts. For tests of the scripts' guards only.
    #[doc(hidden)]
    pub fn edit_scripts(mut self, edit: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.edit = Arc::new(edit);
        self
    }

    /// Connects and checks the version and eviction policy of the servers.
    ///
    /// # Errors
    /// - `NotApplied`: a server cannot be reached.
    /// - `Refused`: a setting or the URL is invalid, or a server rejects the credentials, is too old, or evicts keys.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the servers.
    pub async fn connect(self) -> Result<DelayQueue, DelayError> {
        self.check()?;
        let (topic, settings) = (self.topic.clone(), self.settings);
        let servers = self.servers().await.map_err(|error| delay_error("connecting", error))?;
        DelayQueue::new(Arc::new(servers), &topic, settings)
    }

    fn check(&self) -> Result<(), DelayError> {
        let QueueSettings { slots, visibility, .. } = self.settings;
        if !(1..=MAX_SLOTS).contains(&slots) {
            return refuse(format!("slots is {slots}; set it to 1 to {MAX_SLOTS}"));
        }
        check_visibility(visibility)?;
        if self.namespace.is_empty() || self.namespace.contains(['{', '}']) {
            return refuse("namespace is empty or contains a brace; choose one without `{` and `}`".to_owned());
        }
        Ok(())
    }

    async fn servers(self) -> Result<QueueServers, StoreError> {
        let (url, own) = match &self.server {
            Server::Url(url) => (url.as_str(), None),
            Server::Client(client) => ("", Some(client)),
        };
        let (url, access) = ClientFactory::open(url, own, TlsSettings::read(None, None)?)?;
        let hub = Arc::new(NotificationHub::of_delays(ConsumedCache::new(None, Arc::new(SystemClock::new()))));
        let (timeouts, allow_eviction) = (self.timeouts, self.allow_eviction);
        let connection = |target: Box<dyn ConnectTarget>| Connection::new(target, timeouts, hub.clone());
        // The batcher requires the scripts of the store, which the queue never calls.
        let stores = crate::scripts::load(Dialect::Plain, str::to_owned);
        let options = SendOptions {
            scripts: stores,
            joins: true,
            durability: Durability::Primary,
            compares_natively: Arc::default(),
        };
        let topology = match url.location {
            ServerLocation::Single { server } => {
                Topology::Single(CallBatcher::new(connection(Box::new(SingleServer { server, access })), options))
            }
            ServerLocation::Sentinel { sentinels, primary } => {
                let login = access.of_sentinels(self.sentinel_login.clone());
                let target = SentinelTarget::new(sentinels, primary, login, access, timeouts.connect);
                Topology::Sentinel(CallBatcher::new(connection(Box::new(target)), options))
            }
            ServerLocation::Cluster { nodes } => {
                let factory = NodeFactory { access, timeouts, hub: hub.clone(), options };
                Topology::Cluster(Arc::new(
                    ClusterRouter::connect(factory, nodes, Arc::new(Counters::default())).await?,
                ))
            }
        };
        let mut findings = Vec::new();
        for batcher in topology.batchers(false).await? {
            findings.extend(look(batcher.connection(), allow_eviction).await?);
        }
        HealthReport::new(findings).judge()?;
        let edit = self.edit;
        Ok(QueueServers { topology, hub, scripts: super::scripts::load(|text| edit(text)), namespace: self.namespace })
    }
}

async fn look(connection: &Connection, allow_eviction: bool) -> Result<Vec<HealthFinding>, StoreError> {
    let reply = connection.send(Cmd::new().arg("INFO")).await?;
    let info = text(&reply).map(ServerInfo);
    let server = connection.name();
    let mut findings = ServerFindings { server: &server, all: Vec::new() };
    if info.and_then(ServerVersion::of).is_some_and(|version| version.is_too_old()) {
        findings.refuse("version", "server version is too old; use Redis 6.2 or later, or Valkey");
    }
    startup::eviction(&mut findings, info, allow_eviction);
    Ok(findings.all)
}

/// Checks a visibility timeout.
///
/// # Errors
/// `Refused` if the timeout is out of range.
pub(crate) fn check_visibility(time: Duration) -> Result<(), DelayError> {
    if (Duration::from_millis(1)..=LONGEST_VISIBILITY).contains(&time) {
        return Ok(());
    }
    refuse(format!(
        "visibility is {time:?}: out of range; choose 1 ms to 7 days, and extend longer deliveries while they are processed"
    ))
}

impl fmt::Debug for DelayQueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueueBuilder")
            .field("server", &self.server)
            .field("topic", &self.topic)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

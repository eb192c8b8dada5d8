//! How a delay queue is set up.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{StoreError, SystemClock};
use idempotent_mq::DelayError;
use redis::Cmd;

use super::message::refuse;
use super::queue::{DelayQueue, QueueSettings};
use super::scripts::DelayScripts;
use super::servers::{QueueServers, delay_error};
use crate::batching::batcher::CallBatcher;
use crate::batching::flush::SendOptions;
use crate::cache::ConsumedCache;
use crate::connection::address::Credentials;
use crate::connection::client::ClientFactory;
use crate::connection::notifications::NotificationHub;
use crate::connection::tls::TlsSettings;
use crate::connection::url::{RedisUrl, ServerLocation};
use crate::connection::{ConnectTarget, Connection, ConnectionTimeouts};
use crate::durability::{Counters, Durability};
use crate::scripts::Dialect;
use crate::startup;
use crate::startup::health_report::{Checkup, ServerFindings};
use crate::startup::server_info::{ServerInfo, ServerVersion};
use crate::topology::Topology;
use crate::topology::cluster::{ClusterRouter, NodeFactory};
use crate::topology::sentinel::SentinelTarget;
use crate::topology::single::SingleServer;

/// Sets up a [`DelayQueue`].
#[must_use]
pub struct DelayQueueBuilder {
    url: String,
    topic: String,
    namespace: String,
    settings: QueueSettings,
    timeouts: ConnectionTimeouts,
    sentinel_login: Credentials,
    allow_eviction: bool,
    edit: Arc<dyn Fn(&str) -> String + Send + Sync>,
}

/// Slots of a topic, at most: a taker knows each.
const MAX_SLOTS: u16 = 1_024;
/// A message that is held for longer than this had better be extended.
const LONGEST_VISIBILITY: Duration = Duration::from_secs(7 * 86_400);

impl DelayQueueBuilder {
    pub(crate) fn new(url: String, topic: String) -> Self {
        Self {
            url,
            topic,
            namespace: "idempotent".to_owned(),
            settings: QueueSettings { slots: 1, visibility: Duration::from_secs(30), max_retries: 16 },
            timeouts: ConnectionTimeouts { connect: Duration::from_secs(2), response: Duration::from_secs(2) },
            sentinel_login: Credentials::default(),
            allow_eviction: false,
            edit: Arc::new(str::to_owned),
        }
    }

    /// In how many slots a topic's messages lie, 1 to 1,024; a cluster spreads slots over its nodes. Order, ids and
    /// merging are of one slot. All producers and consumers of a topic have to be told the same number; to change it,
    /// drain the topic first.
    ///
    /// # Default
    /// 1
    pub fn slots(mut self, slots: u16) -> Self {
        self.settings.slots = slots;
        self
    }

    /// How long a delivery is its taker's; then it comes again by itself, which counts as a retry. 1 ms to 7 days.
    ///
    /// # Default
    /// 30 s
    pub fn visibility(mut self, time: Duration) -> Self {
        self.settings.visibility = time;
        self
    }

    /// How many retries a message has, by rollbacks and by deliveries that nobody settled in time, before it becomes a
    /// dead letter. What a [`Consumer`](idempotent_mq::Consumer) retries counts there, not here.
    ///
    /// # Default
    /// 16, which are 17 deliveries
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.settings.max_retries = retries;
        self
    }

    /// What all keys begin with, before a colon.
    ///
    /// # Default
    /// `idempotent`
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
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

    /// Who we are to the sentinels of `redis+sentinel://`; the user and the password in the URL are for the servers.
    ///
    /// # Default
    /// Nobody in particular
    pub fn sentinel_credentials(mut self, user: Option<&str>, password: &str) -> Self {
        self.sentinel_login = Credentials { user: user.map(str::to_owned), password: Some(password.to_owned()) };
        self
    }

    /// Whether to use a server that evicts keys when its memory is full. It then loses messages.
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
        self.edit = Arc::new(edit);
        self
    }

    /// Connects, and looks at the servers' version and whether they evict.
    ///
    /// # Errors
    /// `NotApplied` if the server cannot be reached; `Refused` for settings or a URL that cannot be, a server that lets us
    /// not in, is too old, or evicts.
    ///
    /// # Cancellation
    /// Nothing is left behind.
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
        let url = RedisUrl::parse(&self.url)?;
        let access = ClientFactory::new(&url, TlsSettings::read(None, None)?)?;
        let hub = Arc::new(NotificationHub::of_delays(ConsumedCache::new(None, Arc::new(SystemClock::new()))));
        let (timeouts, allow_eviction) = (self.timeouts, self.allow_eviction);
        let connection = |target: Box<dyn ConnectTarget>| Connection::new(target, timeouts, hub.clone());
        // A lane's own scripts are the store's: they are never asked for here.
        let stores = crate::scripts::ScriptSet::new(Dialect::Plain, str::to_owned);
        let options = SendOptions { scripts: stores, joins: true, durability: Durability::Primary };
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
        Checkup::new(findings).judge()?;
        let edit = self.edit;
        Ok(QueueServers { topology, hub, scripts: DelayScripts::new(|text| edit(text)), namespace: self.namespace })
    }
}

async fn look(connection: &Connection, allow_eviction: bool) -> Result<Vec<crate::Finding>, StoreError> {
    let reply = connection.send(Cmd::new().arg("INFO")).await?;
    let info = startup::text(&reply).map(ServerInfo);
    let server = connection.name();
    let mut findings = ServerFindings { server: &server, all: Vec::new() };
    if info.and_then(ServerVersion::of).is_some_and(|version| version.is_too_old()) {
        findings.refuse("version", "server version is too old; use Redis 6.2 or later, or Valkey");
    }
    startup::eviction(&mut findings, info, allow_eviction);
    Ok(findings.all)
}

/// # Errors
/// `Refused` for a visibility timeout that is none.
pub(crate) fn check_visibility(time: Duration) -> Result<(), DelayError> {
    if (Duration::from_millis(1)..=LONGEST_VISIBILITY).contains(&time) {
        return Ok(());
    }
    refuse(format!(
        "visibility is {time:?}; it has to be 1 ms to 7 days; extend longer deliveries while they are processed"
    ))
}

impl fmt::Debug for DelayQueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = idempotent_core::__url::masked(&self.url);
        f.debug_struct("DelayQueueBuilder")
            .field("url", &url)
            .field("topic", &self.topic)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

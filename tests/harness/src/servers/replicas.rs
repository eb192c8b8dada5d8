//! A primary with replicas.
use super::builder::RedisBuilder;
use super::single::RedisServer;
use super::{or_panic, until};

/// A port on which no server listens.
const NOWHERE: &str = "1";

/// A primary and its replicas without failover, for `WAIT` and for reads from a replica.
#[derive(Debug)]
pub struct RedisReplicas {
    // Replicas are dropped first, because a primary that stops in order waits for them.
    replicas: Vec<RedisServer>,
    primary: RedisServer,
}

impl RedisReplicas {
    /// Starts `replicas` replicas, with the defaults of [`RedisBuilder`].
    ///
    /// # Panics
    /// Like [`RedisBuilder::start_replicas`].
    #[must_use]
    pub fn start(replicas: usize) -> Self {
        RedisServer::builder().start_replicas(replicas)
    }

    pub(super) fn new(builder: &RedisBuilder, replicas: usize) -> Result<Self, String> {
        let primary = RedisServer::new(builder.clone())?;
        let follow = ["--replicaof", "127.0.0.1", &primary.port().to_string()].map(str::to_owned);
        let replicas: Result<Vec<_>, _> =
            (0..replicas).map(|_| RedisServer::new(builder.clone().args(follow.clone()))).collect();
        let group = Self { replicas: replicas?, primary };
        until("all replicas are in step", || {
            group.replicas.iter().all(is_linked) && group.in_step() == group.replicas.len()
        })?;
        Ok(group)
    }

    /// Returns the URL of the primary.
    pub fn url(&self) -> String {
        self.primary.url()
    }

    /// Returns the primary.
    pub fn primary(&self) -> &RedisServer {
        &self.primary
    }

    /// Returns the replicas.
    pub fn replicas(&self) -> &[RedisServer] {
        &self.replicas
    }

    /// Returns the first replica.
    ///
    /// # Panics
    /// If there is no replica.
    pub fn replica(&self) -> &RedisServer {
        or_panic(self.replicas.first().ok_or_else(|| "started without a replica".to_owned()))
    }

    /// Cuts the links between the primary and its replicas: when this method returns, the primary has no replica, and
    /// the replicas keep their data. [`RedisServer::pause`] of a replica keeps the link, but nothing is acknowledged.
    ///
    /// # Panics
    /// If a server does not answer.
    pub fn cut_links(&self) {
        for replica in &self.replicas {
            replica.command(&["REPLICAOF", "127.0.0.1", NOWHERE]);
        }
        or_panic(until("no replica is connected", || self.primary.info("connected_slaves") == "0"));
    }

    /// Links the replicas to the primary again. They are in sync when this method returns.
    ///
    /// # Panics
    /// If a server does not answer.
    pub fn mend_links(&self) {
        for replica in &self.replicas {
            replica.command(&["REPLICAOF", "127.0.0.1", &self.primary.port().to_string()]);
        }
        let mended = || self.replicas.iter().all(is_linked) && self.in_step() == self.replicas.len();
        or_panic(until("all replicas are in step", mended));
    }

    /// Returns the number of replicas that the primary reports as online.
    fn in_step(&self) -> usize {
        let replication = self.primary.command(&["INFO", "replication"]).text();
        replication.lines().filter(|line| line.starts_with("slave") && line.contains("state=online")).count()
    }
}

/// Returns whether a replica is linked to its primary.
pub(super) fn is_linked(replica: &RedisServer) -> bool {
    replica.info("master_link_status") == "up"
}

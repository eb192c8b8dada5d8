//! A primary with replicas.
use super::builder::RedisBuilder;
use super::single::RedisServer;
use super::{or_panic, until};

/// Nobody listens there.
const NOWHERE: &str = "1";

/// A primary and its replicas, and nobody who fails over: for `WAIT` and for reading what a replica holds.
#[derive(Debug)]
pub struct RedisReplicas {
    // Replicas go first: a primary that stops in good order waits for them.
    replicas: Vec<RedisServer>,
    primary: RedisServer,
}

impl RedisReplicas {
    /// So many replicas, with the defaults of [`RedisBuilder`].
    ///
    /// # Panics
    /// As [`RedisBuilder::start_replicas`].
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

    /// The primary's URL.
    pub fn url(&self) -> String {
        self.primary.url()
    }

    /// The primary.
    pub fn primary(&self) -> &RedisServer {
        &self.primary
    }

    /// The replicas.
    pub fn replicas(&self) -> &[RedisServer] {
        &self.replicas
    }

    /// The first replica.
    ///
    /// # Panics
    /// Without any.
    pub fn replica(&self) -> &RedisServer {
        or_panic(self.replicas.first().ok_or_else(|| "started without a replica".to_owned()))
    }

    /// Cuts the links between the primary and its replicas: it has none when this returns, and they keep what they
    /// have. [`RedisServer::pause`] of a replica keeps the link, and nothing is acknowledged.
    ///
    /// # Panics
    /// Where a server does not answer.
    pub fn cut_links(&self) {
        for replica in &self.replicas {
            replica.command(&["REPLICAOF", "127.0.0.1", NOWHERE]);
        }
        or_panic(until("no replica is connected", || self.primary.info("connected_slaves") == "0"));
    }

    /// Links the replicas to the primary again; they are in step when this returns.
    ///
    /// # Panics
    /// Where a server does not answer.
    pub fn mend_links(&self) {
        for replica in &self.replicas {
            replica.command(&["REPLICAOF", "127.0.0.1", &self.primary.port().to_string()]);
        }
        let mended = || self.replicas.iter().all(is_linked) && self.in_step() == self.replicas.len();
        or_panic(until("all replicas are in step", mended));
    }

    /// Replicas the primary counts as online.
    fn in_step(&self) -> usize {
        let replication = self.primary.command(&["INFO", "replication"]).text();
        replication.lines().filter(|line| line.starts_with("slave") && line.contains("state=online")).count()
    }
}

/// Whether a replica follows its primary.
pub(super) fn is_linked(replica: &RedisServer) -> bool {
    replica.info("master_link_status") == "up"
}

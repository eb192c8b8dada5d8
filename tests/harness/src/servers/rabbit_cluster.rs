//! A RabbitMQ cluster.
use super::rabbit::RabbitServer;
use super::{or_panic, until};

/// The queue with which a start checks that queues have a replica on each node.
const PROBE: &str = "idempotent-harness.probe";

/// A private RabbitMQ cluster of three nodes, which share a port mapper. A start takes as long as three of
/// [`RabbitServer`], so a test binary shares one.
///
/// Without a majority of the nodes, the rest continues to run: the broker's setting for partitions is the default,
/// `ignore`.
#[derive(Debug)]
pub struct RabbitCluster {
    nodes: Vec<RabbitServer>,
}

/// The nodes of a replicated queue, by their indexes in [`RabbitCluster::nodes`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QueueReplicas {
    /// The node that orders the queue's operations, or `None` if the replicas have elected none.
    pub leader: Option<usize>,
    /// The nodes that have a replica.
    pub members: Vec<usize>,
    /// The nodes whose replica is running.
    pub online: Vec<usize>,
}

impl RabbitCluster {
    /// Starts three nodes, one after the other. Each runs in the cluster, and a quorum queue has three replicas, when
    /// this method returns.
    ///
    /// # Panics
    /// If a node cannot start or join. The message shows what to install.
    #[must_use]
    pub fn start() -> Self {
        or_panic(Self::new())
    }

    fn new() -> Result<Self, String> {
        let mut nodes = vec![RabbitServer::new(None)?];
        for _ in 1..3 {
            nodes.push(RabbitServer::new(Some(&nodes[0]))?);
        }
        let cluster = Self { nodes };
        cluster.joined()?;
        cluster.nodes[0].eval(&format!(
            "{{new, _}} = rabbit_amqqueue:declare({}, true, false, [{{<<\"x-queue-type\">>, longstr, <<\"quorum\">>}}], \
             none, <<\"a test\">>), \"done\".",
            resource(PROBE)
        ));
        until("a quorum queue has three replicas", || cluster.replicas(PROBE).online.len() == 3)?;
        cluster.nodes[0].eval(&format!(
            "{{ok, Q}} = rabbit_amqqueue:lookup({}), {{ok, _}} = rabbit_amqqueue:delete(Q, false, false, <<\"a test\">>), \
             \"done\".",
            resource(PROBE)
        ));
        Ok(cluster)
    }

    /// Returns the nodes. [`RabbitServer::kill`] kills one, and [`RabbitServer::restart`] starts it again.
    pub fn nodes(&self) -> &[RabbitServer] {
        &self.nodes
    }

    /// Returns one of [`nodes`](Self::nodes).
    ///
    /// # Panics
    /// If the index is too large.
    pub fn node(&self, index: usize) -> &RabbitServer {
        &self.nodes[index]
    }

    /// Starts the killed nodes, one after the other, and waits until all nodes run in the cluster.
    ///
    /// # Panics
    /// If a node does not start.
    pub fn restart_killed(&self) {
        for node in self.nodes.iter().filter(|node| !node.is_running()) {
            node.restart();
        }
        or_panic(self.joined());
    }

    /// Returns the nodes of a quorum queue of the virtual host `/`, as the first running node knows them.
    ///
    /// # Panics
    /// If no node is running, or the queue does not exist.
    pub fn replicas(&self, queue: &str) -> QueueReplicas {
        let node = self.nodes.iter().find(|node| node.is_running());
        let node = or_panic(node.ok_or_else(|| "no node is running".to_owned()));
        // A leader without a name is an empty atom.
        let names = node.eval(&format!(
            "{{ok, Q}} = rabbit_amqqueue:lookup({}), Rows = rabbit_amqqueue:info(Q, [leader, members, online]), \
             Names = fun (Names) -> [atom_to_list(Name) ++ \",\" || Name <- lists:flatten([Names])] end, \
             lists:flatten([[Names(Row), $;] || {{_, Row}} <- Rows]).",
            resource(queue)
        ));
        let mut rows = names.split(';').map(|names| self.indexes(names));
        let mut next = || rows.next().unwrap_or_default();
        QueueReplicas { leader: next().first().copied(), members: next(), online: next() }
    }

    /// Returns the indexes of named nodes, in ascending order.
    fn indexes(&self, names: &str) -> Vec<usize> {
        let is_named = |node: &RabbitServer| names.split(',').any(|name| name == node.name());
        (0..self.nodes.len()).filter(|index| is_named(&self.nodes[*index])).collect()
    }

    /// Waits until each node knows that all nodes are running.
    fn joined(&self) -> Result<(), String> {
        let known = |node: &RabbitServer| node.eval("integer_to_list(length(rabbit_nodes:all_running())).");
        until("all nodes run in the cluster", || self.nodes.iter().all(|node| known(node) == "3"))
    }
}

/// Drops the first node last: its folder is that of the port mapper.
impl Drop for RabbitCluster {
    fn drop(&mut self) {
        while self.nodes.pop().is_some() {}
    }
}

/// Returns the Erlang expression for the name of a queue.
fn resource(queue: &str) -> String {
    format!("rabbit_misc:r(<<\"/\">>, queue, <<\"{queue}\">>)")
}

//! The nodes of a cluster.
use idempotent_core::{Key, StoreNode, StoreNodes};

use crate::RedisStore;
use crate::topology::Topology;
use crate::topology::cluster::ClusterRouter;

impl RedisStore {
    /// Returns whether the keys are distributed over several nodes that fail independently.
    pub(super) fn has_nodes(&self) -> bool {
        self.router().is_some()
    }

    fn router(&self) -> Option<&ClusterRouter> {
        match &self.0.topology {
            Topology::Cluster(router) => Some(router),
            Topology::Single(_) | Topology::Sentinel(_) => None,
        }
    }
}

impl StoreNodes for RedisStore {
    fn node_of(&self, key: &Key) -> Option<StoreNode> {
        self.router()?.owner_of(key.as_str())
    }

    fn node_count(&self) -> usize {
        self.router().map_or(0, ClusterRouter::owner_count)
    }
}

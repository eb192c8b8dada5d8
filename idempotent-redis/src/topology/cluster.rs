//! Routing within a Redis Cluster: slots, nodes and redirections.
//!
//! The client library has a cluster client of its own. That client splits a pipeline for several slots of one node into
//! separate requests, retries calls that may have been applied, and does not report which calls it sent. Therefore this
//! module routes the calls itself: each node has a batcher, as a single server has.
mod slot_map;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use idempotent_core::StoreNode;

use self::slot_map::{ClusterNode, ClusterView, SlotMap};
use crate::batching::batcher::CallBatcher;
use crate::batching::call::ScriptCall;
use crate::batching::call::reply::ScriptReply;
use crate::batching::flush::SendOptions;
use crate::connection::address::ServerAddress;
use crate::connection::client::ClientFactory;
use crate::connection::notifications::NotificationHub;
use crate::connection::single_flight::SingleFlight;
use crate::connection::url::ServerEndpoint;
use crate::connection::{Connection, ConnectionTimeouts};
use crate::durability::{Counters, count};
use crate::failure::{CallFailure, FailureKind};
use crate::lock;
use crate::topology::{RoutedCall, SingleServer, staggered};

/// A router for the calls to a cluster, with all known nodes.
pub(crate) struct ClusterRouter {
    factory: NodeFactory,
    seeds: Vec<ServerAddress>,
    map: Mutex<Arc<SlotMap>>,
    refreshing: SingleFlight,
    counters: Arc<Counters>,
}

/// A factory for the batchers of nodes.
pub(crate) struct NodeFactory {
    pub(crate) access: ClientFactory,
    pub(crate) timeouts: ConnectionTimeouts,
    pub(crate) hub: Arc<NotificationHub>,
    pub(crate) options: SendOptions,
}

impl NodeFactory {
    fn node(&self, address: &ServerAddress) -> Arc<ClusterNode> {
        let target = SingleServer { server: ServerEndpoint::Tcp(address.clone()), access: self.access.clone() };
        let connection = Connection::new(Box::new(target), self.timeouts, self.hub.clone());
        Arc::new(ClusterNode::new(address, CallBatcher::new(connection, self.options.clone())))
    }
}

impl ClusterRouter {
    /// Connects to the cluster.
    ///
    /// # Errors
    /// The error of the last seed, if no seed returns the slots.
    pub(crate) async fn connect(
        factory: NodeFactory,
        seeds: Vec<ServerAddress>,
        counters: Arc<Counters>,
    ) -> Result<Self, CallFailure> {
        let map = Mutex::new(Arc::new(SlotMap::empty()));
        let cluster = Self { factory, seeds, map, refreshing: SingleFlight::default(), counters };
        cluster.refresh(0).await?;
        Ok(cluster)
    }

    /// Sends a call to the known owner of its slot.
    pub(crate) async fn call<T: RoutedCall>(&self, call: &T) -> Result<T::Reply, CallFailure> {
        let node = self.node_of(call.key())?;
        send(&node, call).await
    }

    /// Sends calls in order, with one pipeline per node. The nodes are called concurrently.
    pub(crate) async fn call_all(&self, calls: &[&ScriptCall]) -> Vec<Result<ScriptReply, CallFailure>> {
        let map = self.map();
        let mut groups: HashMap<&ServerAddress, (&Arc<ClusterNode>, Vec<usize>)> = HashMap::new();
        let mut answers: Vec<_> = calls.iter().map(|_| Err(unassigned_slot())).collect();
        for (at, call) in calls.iter().enumerate() {
            if let Some(node) = map.owner_of(slot_map::slot_of(call.key.as_str())) {
                groups.entry(&node.address).or_insert_with(|| (node, Vec::new())).1.push(at);
            }
        }
        let trips = groups.into_values().map(async |(node, places)| {
            let some: Vec<&ScriptCall> = places.iter().map(|at| calls[*at]).collect();
            (node, places, node.batcher.send_all(&some).await)
        });
        for (node, places, reply) in join_all(trips).await {
            for (at, reply) in places.into_iter().zip(reply) {
                answers[at] = reply.map_err(|failure| node.explain(failure));
            }
        }
        answers
    }

    /// Returns the version of the slot map, which rises with each refresh.
    pub(crate) fn version(&self) -> u64 {
        self.map().number
    }

    /// Makes the attempt after one that was not applied and used the version `seen`.
    pub(crate) async fn retry_once<T: RoutedCall>(
        &self,
        failure: &CallFailure,
        call: &T,
        seen: u64,
    ) -> Result<T::Reply, CallFailure> {
        match &failure.kind {
            FailureKind::Ask(to) => {
                count(&self.counters.redirections);
                let node = self.node_at(to)?;
                call.send_asking(&node.batcher).await.map_err(|failure| node.explain(failure))
            }
            FailureKind::Moved(to) => {
                count(&self.counters.redirections);
                let node = self.node_at(to)?;
                self.set_owner(slot_map::slot_of(call.key()), &node);
                send(&node, call).await
            }
            _ => {
                // A failed node may have been replaced. If the refresh fails, the next attempt shows the error.
                let _ = self.refresh(seen).await;
                self.call(call).await
            }
        }
    }

    /// Returns the name of the known owner of a key.
    pub(crate) fn owner_of(&self, key: &str) -> Option<StoreNode> {
        self.map().owner_of(slot_map::slot_of(key)).map(|node| node.name.clone())
    }

    /// Returns the number of nodes that own slots.
    pub(crate) fn owner_count(&self) -> usize {
        self.map().owner_count()
    }

    /// Returns the batchers of nodes that own slots. With `refresh`, the slots are fetched first.
    pub(crate) async fn batchers(&self, refresh: bool) -> Result<Vec<CallBatcher>, CallFailure> {
        if refresh {
            self.refresh(self.map().number).await?;
        }
        Ok(self.map().owners().map(|node| node.batcher.clone()).collect())
    }

    fn node_of(&self, key: &str) -> Result<Arc<ClusterNode>, CallFailure> {
        self.map().owner_of(slot_map::slot_of(key)).cloned().ok_or_else(unassigned_slot)
    }

    fn node_at(&self, to: &str) -> Result<Arc<ClusterNode>, CallFailure> {
        let address = ServerAddress::parse(to)
            .ok_or_else(|| CallFailure::transient("a node sent a redirection without an address"))?;
        if let Some(node) = self.map().node_at(&address) {
            return Ok(node.clone());
        }
        let mut map = lock(&self.map);
        // Another call may have added the node.
        if let Some(node) = map.node_at(&address) {
            return Ok(node.clone());
        }
        let node = self.factory.node(&address);
        *map = Arc::new(map.with_node(node.clone()));
        Ok(node)
    }

    /// Sets the owner of one slot. The other slots are updated by later redirections or by a refresh.
    fn set_owner(&self, slot: u16, to: &Arc<ClusterNode>) {
        let mut map = lock(&self.map);
        *map = Arc::new(map.with_owner(slot, to));
    }

    /// Fetches the slot map, unless it has changed since the version `seen`.
    async fn refresh(&self, seen: u64) -> Result<(), CallFailure> {
        let fresh = || (self.map().number != seen).then_some(());
        self.refreshing.share(fresh, self.fetch()).await
    }

    async fn fetch(&self) -> Result<(), CallFailure> {
        let old = self.map();
        let seeds = self.seeds.iter().filter(|seed| old.node_at(seed).is_none()).map(|seed| self.factory.node(seed));
        // Starts with another node each time, so that a failed or outdated node is not always the first.
        let mut nodes: Vec<Arc<ClusterNode>> = old.nodes().cloned().chain(seeds).collect();
        let first = usize::try_from(old.number).unwrap_or_default() % nodes.len().max(1);
        nodes.rotate_left(first);
        let tries = nodes.into_iter().map(async |node| ClusterView::fetch(&node).await);
        let good = |view: &ClusterView| view.is_ok && view.epoch >= old.epoch;
        let better = |one: &ClusterView, other: &ClusterView| (one.is_ok, one.epoch) > (other.is_ok, other.epoch);
        let view = staggered::first(tries, good, better, self.factory.timeouts.connect / 2).await?;
        let mut map = lock(&self.map);
        let next = map.updated(view, |address| self.factory.node(address));
        *map = Arc::new(next);
        Ok(())
    }

    fn map(&self) -> Arc<SlotMap> {
        lock(&self.map).clone()
    }
}

async fn send<T: RoutedCall>(node: &ClusterNode, call: &T) -> Result<T::Reply, CallFailure> {
    call.send(&node.batcher).await.map_err(|failure| node.explain(failure))
}

fn unassigned_slot() -> CallFailure {
    CallFailure::transient("no cluster node owns this slot")
}

impl fmt::Debug for ClusterRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let redirections = self.counters.redirections.load(Ordering::Relaxed);
        f.debug_struct("ClusterRouter").field("map", &self.map()).field("redirections", &redirections).finish()
    }
}

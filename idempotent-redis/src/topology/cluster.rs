//! A Redis Cluster: which node has a slot, and what becomes of a call when that changes.
//!
//! The client library has a cluster client of its own. It sends a pipeline of keys that lie in several slots of one node
//! as so many requests, repeats on its own what may have been applied, and does not say what it has sent. So each node
//! has a lane here, as a single server has, and this says which.
mod slot_map;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;

use self::slot_map::{Map, Node, View};
use crate::batching::batcher::Lane;
use crate::batching::call::{Answer, Call};
use crate::batching::flush::Manner;
use crate::connection::address::Address;
use crate::connection::client::Access;
use crate::connection::notifications::Hub;
use crate::connection::single_flight::Flight;
use crate::connection::url::Server;
use crate::connection::{Link, Patience};
use crate::durability::{Counters, count};
use crate::failure::{Failure, FailureKind};
use crate::topology::Trip;
use crate::topology::single::Single;
use crate::topology::staggered;

/// All its nodes that have been heard of.
pub(crate) struct Cluster {
    maker: Maker,
    seeds: Vec<Address>,
    map: Mutex<Arc<Map>>,
    refreshing: Flight,
    counters: Arc<Counters>,
}

/// What a lane for a node is made of.
pub(crate) struct Maker {
    pub(crate) access: Access,
    pub(crate) patience: Patience,
    pub(crate) hub: Arc<Hub>,
    pub(crate) manner: Manner,
}

impl Maker {
    fn node(&self, address: &Address) -> Arc<Node> {
        let target = Single { server: Server::Tcp(address.clone()), access: self.access.clone() };
        let link = Link::new(Box::new(target), self.patience, self.hub.clone());
        Arc::new(Node { address: address.clone(), lane: Lane::new(link, self.manner.clone()) })
    }
}

impl Cluster {
    /// # Errors
    /// That of the last seed, where none says which node has which slot.
    pub(crate) async fn connect(maker: Maker, seeds: Vec<Address>, counters: Arc<Counters>) -> Result<Self, Failure> {
        let map = Mutex::new(Arc::new(Map::none()));
        let cluster = Self { maker, seeds, map, refreshing: Flight::default(), counters };
        cluster.refresh(0).await?;
        Ok(cluster)
    }

    /// Sends a call to the node that has its slot, as far as is known.
    pub(crate) async fn call<T: Trip>(&self, call: &T) -> Result<T::Answer, Failure> {
        let node = self.node_of(call.key())?;
        call.send(&node.lane).await.map_err(|failure| failure.beside(&node.address))
    }

    /// Sends calls in their order, those of one node in one pipeline, those of different nodes side by side.
    pub(crate) async fn all(&self, calls: &[&Call]) -> Vec<Result<Answer, Failure>> {
        let map = self.map();
        let mut groups: HashMap<&Address, (&Arc<Node>, Vec<usize>)> = HashMap::new();
        let mut answers: Vec<_> = calls.iter().map(|_| Err(unserved())).collect();
        for (at, call) in calls.iter().enumerate() {
            if let Some(node) = map.node(slot_map::slot_of(call.key.as_str())) {
                groups.entry(&node.address).or_insert_with(|| (node, Vec::new())).1.push(at);
            }
        }
        let trips = groups.into_values().map(async |(node, places)| {
            let some: Vec<&Call> = places.iter().map(|at| calls[*at]).collect();
            (node, places, node.lane.all(&some).await)
        });
        for (node, places, said) in join_all(trips).await {
            for (at, said) in places.into_iter().zip(said) {
                answers[at] = said.map_err(|failure| failure.beside(&node.address));
            }
        }
        answers
    }

    /// Rises whenever it is asked anew who has which slot.
    pub(crate) fn view(&self) -> u64 {
        self.map().number
    }

    /// The try that follows one which was surely not applied, by the view `seen`.
    pub(crate) async fn after<T: Trip>(&self, failure: &Failure, call: &T, seen: u64) -> Result<T::Answer, Failure> {
        match &failure.kind {
            FailureKind::Ask(to) => {
                count(&self.counters.redirections);
                let node = self.node_at(to)?;
                call.send_asking(&node.lane).await.map_err(|failure| failure.beside(&node.address))
            }
            FailureKind::Moved(to) => {
                count(&self.counters.redirections);
                let node = self.node_at(to)?;
                self.moved(slot_map::slot_of(call.key()), &node);
                call.send(&node.lane).await.map_err(|failure| failure.beside(&node.address))
            }
            _ => {
                // Who has failed may have been replaced. Where nobody can say, the next try finds out.
                let _ = self.refresh(seen).await;
                self.call(call).await
            }
        }
    }

    /// Nodes that have slots, `anew` as they say now.
    pub(crate) async fn lanes(&self, anew: bool) -> Result<Vec<Lane>, Failure> {
        if anew {
            self.refresh(self.map().number).await?;
        }
        Ok(self.map().owners().map(|node| node.lane.clone()).collect())
    }

    fn node_of(&self, key: &str) -> Result<Arc<Node>, Failure> {
        self.map().node(slot_map::slot_of(key)).cloned().ok_or_else(unserved)
    }

    fn node_at(&self, to: &str) -> Result<Arc<Node>, Failure> {
        let address = Address::parse(to).ok_or_else(|| Failure::soon("a node redirected to no address"))?;
        if let Some(node) = self.map().at(&address) {
            return Ok(node.clone());
        }
        let mut map = self.lock();
        // Another may have been first.
        if let Some(node) = map.at(&address) {
            return Ok(node.clone());
        }
        let node = self.maker.node(&address);
        *map = Arc::new(map.with(node.clone()));
        Ok(node)
    }

    /// The slot is that node's. The others are asked for by and by, as calls are redirected or the map is fetched anew.
    fn moved(&self, slot: u16, to: &Arc<Node>) {
        let mut map = self.lock();
        *map = Arc::new(map.with_owner(slot, to));
    }

    /// Fetches who has which slot, unless somebody has since `seen`.
    async fn refresh(&self, seen: u64) -> Result<(), Failure> {
        let fresh = || (self.map().number != seen).then_some(());
        self.refreshing.share(fresh, self.fetch()).await
    }

    async fn fetch(&self) -> Result<(), Failure> {
        let old = self.map();
        let seeds = self.seeds.iter().filter(|seed| old.at(seed).is_none()).map(|seed| self.maker.node(seed));
        // Another one each time: who has failed, or has not heard of it yet, is not asked first again.
        let mut nodes: Vec<Arc<Node>> = old.nodes().cloned().chain(seeds).collect();
        let first = usize::try_from(old.number).unwrap_or_default() % nodes.len().max(1);
        nodes.rotate_left(first);
        let tries = nodes.into_iter().map(async |node| View::ask(&node).await);
        let good = |view: &View| view.is_ok && view.epoch >= old.epoch;
        let better = |one: &View, other: &View| (one.is_ok, one.epoch) > (other.is_ok, other.epoch);
        let view = staggered::first(tries, good, better, self.maker.patience.connect / 2).await?;
        let mut map = self.lock();
        let next = map.next(view, |address| self.maker.node(address));
        *map = Arc::new(next);
        Ok(())
    }

    fn map(&self) -> Arc<Map> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Map>> {
        // A map is put there whole.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unserved() -> Failure {
    Failure::soon("no node of the cluster has this slot")
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let redirections = self.counters.redirections.load(Ordering::Relaxed);
        f.debug_struct("Cluster").field("map", &self.map()).field("redirections", &redirections).finish()
    }
}

//! A Redis Cluster.
use super::builder::RedisBuilder;
use super::resp::Value;
use super::single::RedisServer;
use super::{or_panic, until};

const SLOTS: u16 = 16_384;

/// The time limit for a node that moves keys to another one.
const MOVE_MILLIS: &str = "5000";

/// A Redis Cluster: primaries that share the slots, and their replicas.
///
/// A node that does not answer for two seconds is marked as failed. The other nodes continue to serve their slots.
#[derive(Debug)]
pub struct RedisCluster {
    /// The primaries, then the replicas of each primary in turn.
    nodes: Vec<RedisServer>,
    ids: Vec<String>,
    primaries: usize,
    password: Option<String>,
}

impl RedisCluster {
    /// Starts primaries without replicas, with the defaults of [`RedisBuilder`].
    ///
    /// # Panics
    /// Like [`RedisBuilder::start_cluster`].
    #[must_use]
    pub fn start(primaries: usize) -> Self {
        RedisServer::builder().start_cluster(primaries, 0)
    }

    pub(super) fn new(builder: &RedisBuilder, primaries: usize, replicas: usize) -> Result<Self, String> {
        if primaries == 0 {
            return Err("a cluster needs a primary".to_owned());
        }
        let settings = "--cluster-enabled yes --cluster-node-timeout 2000 --cluster-config-file nodes.conf \
                        --cluster-require-full-coverage no";
        let builder = builder.clone().bus().args(settings.split(' '));
        let nodes = (0..primaries * (1 + replicas)).map(|_| RedisServer::new(builder.clone()));
        let nodes: Vec<RedisServer> = nodes.collect::<Result<_, _>>()?;
        let ids = nodes.iter().map(|node| node.command(&["CLUSTER", "MYID"]).text()).collect();
        let cluster = Self { nodes, ids, primaries, password: builder.secret().map(str::to_owned) };
        cluster.share_slots()?;
        cluster.meet()?;
        cluster.replicate(replicas)?;
        Ok(cluster)
    }

    /// Returns `redis+cluster://127.0.0.1:PORT,…` with all initial primaries.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.nodes[..self.primaries].iter().map(RedisServer::address).collect();
        let password = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis+cluster://{password}{}", addresses.join(","))
    }

    /// Returns the initial primaries, then the replicas of each primary in turn.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Returns one of [`nodes`](Self::nodes).
    ///
    /// # Panics
    /// If the index is too large.
    pub fn node(&self, index: usize) -> &RedisServer {
        &self.nodes[index]
    }

    /// Runs `redis-cli -c` on the first node. It follows redirections.
    ///
    /// # Panics
    /// Like [`RedisServer::cli`].
    pub fn cli(&self, arguments: &[&str]) -> String {
        self.nodes[0].cli(&[&["-c"], arguments].concat())
    }

    /// Returns the slot of a key.
    ///
    /// # Panics
    /// If no node answers.
    pub fn slot_of(&self, key: impl AsRef<[u8]>) -> u16 {
        let slot = self.any().command(&[b"CLUSTER".as_slice(), b"KEYSLOT", key.as_ref()]).integer();
        or_panic(slot.and_then(|slot| u16::try_from(slot).ok()).ok_or_else(|| "no slot".to_owned()))
    }

    /// Returns the index of the node that serves a slot, as reported by the first node that answers.
    ///
    /// # Panics
    /// If no node serves the slot.
    pub fn owner_of(&self, slot: u16) -> usize {
        or_panic(self.owner_by(self.any(), slot).ok_or_else(|| format!("no node serves slot {slot}")))
    }

    /// Begins to move a slot: from now on, `from` answers `ASK` for missing keys of the slot, and `TRYAGAIN` to
    /// commands with several keys of which some are missing.
    ///
    /// # Panics
    /// If a node refuses.
    pub fn begin_migration(&self, slot: u16, from: usize, to: usize) {
        self.set_slot(to, slot, &["IMPORTING", &self.ids[from]]);
        self.set_slot(from, slot, &["MIGRATING", &self.ids[to]]);
    }

    /// Moves at most `at_most` keys of the slot. Returns the number of moved keys.
    ///
    /// # Panics
    /// If a node refuses.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize, at_most: usize) -> usize {
        let some = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &at_most.to_string()];
        let keys = self.nodes[from].command(&some);
        let keys: Vec<&[u8]> = keys
            .items()
            .iter()
            .filter_map(|key| match key {
                Value::Bytes(key) => Some(key.as_slice()),
                _ => None,
            })
            .collect();
        if !keys.is_empty() {
            self.move_these(&keys, from, to);
        }
        keys.len()
    }

    /// Moves these keys like [`move_keys`](Self::move_keys).
    ///
    /// # Panics
    /// If a node refuses.
    pub fn move_these<K: AsRef<[u8]>>(&self, keys: &[K], from: usize, to: usize) {
        let port = self.nodes[to].port().to_string();
        let mut command = ["MIGRATE", "127.0.0.1", &port, "", "0", MOVE_MILLIS].map(str::as_bytes).to_vec();
        if let Some(password) = &self.password {
            command.extend([b"AUTH".as_slice(), password.as_bytes()]);
        }
        command.push(b"KEYS");
        command.extend(keys.iter().map(AsRef::as_ref));
        accept(&self.nodes[from].command(&command));
    }

    /// Ends the move: the slot belongs to the other node, and `from` answers `MOVED`. All nodes know the new owner when
    /// this method returns.
    ///
    /// # Panics
    /// If a node refuses, e.g. because it still has keys of the slot.
    pub fn end_migration(&self, slot: u16, from: usize, to: usize) {
        // The new owner is set first: in between, the slot briefly has two owners instead of none.
        for node in [to, from] {
            self.set_slot(node, slot, &["NODE", &self.ids[to]]);
        }
        let all_know = || self.running().all(|node| self.owner_by(node, slot) == Some(to));
        or_panic(until("all nodes know the slot's new owner", all_know));
    }

    /// Kills (SIGKILL) a primary with replicas, and blocks until a replica has taken over its slots and all running
    /// nodes know it. Returns the index of the new primary.
    ///
    /// # Panics
    /// If the primary serves no slot, or no replica has taken over within three minutes.
    pub fn fail_over(&self, primary: usize) -> usize {
        let slot = (0..SLOTS).find(|slot| self.owner_by(&self.nodes[primary], *slot) == Some(primary));
        let slot = or_panic(slot.ok_or_else(|| format!("node {primary} serves no slot")));
        self.nodes[primary].kill();
        let mut new = primary;
        or_panic(until("a replica has taken over", || {
            new = self.owner_by(self.any(), slot).unwrap_or(primary);
            new != primary && self.running().all(|node| self.owner_by(node, slot) == Some(new) && is_ok(node))
        }));
        new
    }

    /// Makes a node announce this port to clients and other nodes, e.g. the port of a proxy. All nodes know the port
    /// when this method returns.
    ///
    /// # Panics
    /// If a node does not answer.
    pub fn announce(&self, node: usize, port: u16) {
        accept(&self.nodes[node].command(&["CONFIG", "SET", "cluster-announce-port", &port.to_string()]));
        let (id, place) = (&self.ids[node], format!("127.0.0.1:{port}@"));
        let told = |by: &RedisServer| {
            let nodes = by.command(&["CLUSTER", "NODES"]).text();
            nodes.lines().any(|line| line.starts_with(id.as_str()) && line.contains(&place))
        };
        or_panic(until("all nodes know the port", || self.running().all(told)));
    }

    fn share_slots(&self) -> Result<(), String> {
        for (index, node) in self.nodes[..self.primaries].iter().enumerate() {
            let bound = |part: usize| part * usize::from(SLOTS) / self.primaries;
            let slots = (bound(index)..bound(index + 1)).map(|slot| slot.to_string());
            let mut command = vec!["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
            command.extend(slots);
            accepted(&node.command(&command))?;
        }
        // Epochs differ from the start, because nodes with equal epochs must first agree on the higher one.
        for (node, epoch) in self.nodes.iter().zip(1..) {
            accepted(&node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &format!("{epoch}")]))?;
        }
        Ok(())
    }

    fn meet(&self) -> Result<(), String> {
        for (at, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[at + 1..] {
                accepted(&node.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]))?;
            }
        }
        let all = self.nodes.len();
        let is_ready = |node: &RedisServer| is_ok(node) && knows_all_owners(node) && members(node, "") == all;
        until("all nodes know each other and all slots", || self.nodes.iter().all(is_ready))
    }

    fn replicate(&self, replicas: usize) -> Result<(), String> {
        let followers = &self.nodes[self.primaries..];
        for (at, node) in followers.iter().enumerate() {
            accepted(&node.command(&["CLUSTER", "REPLICATE", &self.ids[at / replicas]]))?;
        }
        until("all nodes know the replicas, and these are in step", || {
            followers.iter().all(super::replicas::is_linked)
                && self.nodes.iter().all(|node| members(node, "slave") == followers.len())
        })
    }

    fn set_slot(&self, node: usize, slot: u16, state: &[&str]) {
        accept(&self.nodes[node].command(&[&["CLUSTER", "SETSLOT", &slot.to_string()], state].concat()));
    }

    fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    fn any(&self) -> &RedisServer {
        or_panic(self.running().next().ok_or_else(|| "no node is running".to_owned()))
    }

    /// Returns the index of the slot's owner as a node sees it.
    fn owner_by(&self, node: &RedisServer, slot: u16) -> Option<usize> {
        let ranges = node.command(&["CLUSTER", "SLOTS"]);
        let range = ranges.items().iter().find(|range| match range.items() {
            [first, last, ..] => first.integer() <= Some(slot.into()) && Some(slot.into()) <= last.integer(),
            _ => false,
        })?;
        let id = range.items().get(2)?.items().get(2)?.text();
        self.ids.iter().position(|known| *known == id)
    }
}

/// Returns the number of nodes that a node knows by name, optionally only those with this flag.
fn members(node: &RedisServer, flag: &str) -> usize {
    let nodes = node.command(&["CLUSTER", "NODES"]).text();
    let flags = nodes.lines().filter_map(|line| line.split(' ').nth(2));
    flags.filter(|flags| !flags.contains("handshake") && flags.contains(flag)).count()
}

fn is_ok(node: &RedisServer) -> bool {
    node.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")
}

/// Returns whether a node knows the owner of every slot. Without full coverage, its state is "ok" before that.
fn knows_all_owners(node: &RedisServer) -> bool {
    node.command(&["CLUSTER", "INFO"]).text().contains(&format!("cluster_slots_assigned:{SLOTS}"))
}

fn accepted(answer: &Value) -> Result<(), String> {
    if answer.is_error() { Err(format!("a node refused: {}", answer.text())) } else { Ok(()) }
}

fn accept(answer: &Value) {
    or_panic(accepted(answer));
}

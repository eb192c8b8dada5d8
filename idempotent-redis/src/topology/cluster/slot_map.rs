//! The map from slots to nodes.
use std::fmt;
use std::sync::Arc;

use idempotent_core::StoreNode;
use redis::{Cmd, Pipeline, Value};

use crate::batching::batcher::CallBatcher;
use crate::connection::address::ServerAddress;
use crate::connection::{field, refused, text};
use crate::failure::CallFailure;

pub(super) const SLOTS: u16 = 16_384;

/// Returns the slot of a key. Only a non-empty part in braces is hashed.
pub(super) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16::State::<crc16::XMODEM>::calculate(hashed.as_bytes()) % SLOTS
}

pub(super) struct ClusterNode {
    pub(super) address: ServerAddress,
    pub(super) name: StoreNode,
    pub(super) batcher: CallBatcher,
}

impl ClusterNode {
    pub(super) fn new(address: &ServerAddress, batcher: CallBatcher) -> Self {
        Self { address: address.clone(), name: StoreNode::new(address.to_string()), batcher }
    }

    /// Adds this node to the failure of one of its calls.
    pub(super) fn explain(&self, failure: CallFailure) -> CallFailure {
        failure.at_node(&self.name, &self.address)
    }
}

/// The slots and nodes at one point in time.
pub(super) struct SlotMap {
    /// Number of the refresh.
    pub(super) number: u64,
    /// Cluster epoch, which rises with each change of roles.
    pub(super) epoch: u64,
    /// Indices into `nodes`.
    slots: Box<[u16]>,
    nodes: Vec<Arc<ClusterNode>>,
    /// The number of nodes that owned slots at the last refresh.
    owners: usize,
}

const UNASSIGNED: u16 = u16::MAX;

impl SlotMap {
    pub(super) fn empty() -> Self {
        Self { number: 0, epoch: 0, slots: vec![UNASSIGNED; SLOTS.into()].into(), nodes: Vec::new(), owners: 0 }
    }

    pub(super) fn owner_of(&self, slot: u16) -> Option<&Arc<ClusterNode>> {
        self.nodes.get(usize::from(*self.slots.get(usize::from(slot))?))
    }

    pub(super) fn node_at(&self, address: &ServerAddress) -> Option<&Arc<ClusterNode>> {
        self.nodes.iter().find(|node| node.address == *address)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<ClusterNode>> {
        self.nodes.iter()
    }

    /// Returns the number of nodes that owned slots at the last refresh.
    pub(super) fn owner_count(&self) -> usize {
        self.owners
    }

    /// Returns the nodes that own slots, in slot order.
    pub(super) fn owners(&self) -> impl Iterator<Item = &Arc<ClusterNode>> {
        let mut places = Vec::new();
        for place in &self.slots {
            if *place != UNASSIGNED && !places.contains(place) {
                places.push(*place);
            }
        }
        places.into_iter().filter_map(|place| self.nodes.get(usize::from(place)))
    }

    /// Returns a copy with one more node.
    pub(super) fn with_node(&self, node: Arc<ClusterNode>) -> Self {
        let nodes = self.nodes.iter().cloned().chain([node]).collect();
        Self { slots: self.slots.clone(), nodes, ..*self }
    }

    /// Returns a copy in which this node owns the slot.
    pub(super) fn with_owner(&self, slot: u16, owner: &Arc<ClusterNode>) -> Self {
        let mut next = if self.node_at(&owner.address).is_some() { self.copy() } else { self.with_node(owner.clone()) };
        let place = next.nodes.iter().position(|node| node.address == owner.address);
        if let (Some(entry), Some(place)) = (next.slots.get_mut(usize::from(slot)), place) {
            *entry = u16::try_from(place).unwrap_or(UNASSIGNED);
        }
        next
    }

    /// Returns a map for the current view. Known nodes keep their connections, and nodes outside the view are dropped.
    pub(super) fn updated(&self, view: ClusterView, make: impl Fn(&ServerAddress) -> Arc<ClusterNode>) -> Self {
        let mut next = Self { number: self.number + 1, epoch: view.epoch, ..Self::empty() };
        for SlotRange { first, last, owner } in view.ranges {
            let known = next.nodes.iter().position(|node| node.address == owner);
            let place = known.unwrap_or_else(|| {
                next.nodes.push(self.node_at(&owner).cloned().unwrap_or_else(|| make(&owner)));
                next.nodes.len() - 1
            });
            let Ok(place) = u16::try_from(place) else { continue };
            if let Some(slots) = next.slots.get_mut(usize::from(first)..=usize::from(last)) {
                slots.fill(place);
            }
        }
        next.owners = next.nodes.len();
        next
    }

    fn copy(&self) -> Self {
        Self { slots: self.slots.clone(), nodes: self.nodes.clone(), ..*self }
    }
}

impl fmt::Debug for SlotMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.nodes.iter().map(|node| node.address.to_string())).finish()
    }
}

/// Consecutive slots with one owner.
#[derive(Debug, PartialEq)]
pub(super) struct SlotRange {
    first: u16,
    last: u16,
    owner: ServerAddress,
}

/// The cluster as one node sees it.
#[derive(Debug, PartialEq)]
pub(super) struct ClusterView {
    /// True if the node is part of the majority.
    pub(super) is_ok: bool,
    pub(super) epoch: u64,
    ranges: Vec<SlotRange>,
}

impl ClusterView {
    pub(super) async fn fetch(node: &ClusterNode) -> Result<Self, CallFailure> {
        let mut pipeline = Pipeline::new();
        pipeline.add_command(command(["CLUSTER", "INFO"])).add_command(command(["CLUSTER", "SLOTS"]));
        let mut reply = node.batcher.connection().send_pipeline(&pipeline).await?.into_iter().map(refused);
        let unexpected = || CallFailure::unreachable("unexpected reply to CLUSTER SLOTS");
        let info = reply.next().ok_or_else(unexpected)?.map_err(explain_no_cluster)?;
        let slots = reply.next().ok_or_else(unexpected)?.map_err(explain_no_cluster)?;
        Self::read(text(&info).ok_or_else(unexpected)?, &slots, &node.address).ok_or_else(unexpected)
    }

    fn read(info: &str, slots: &Value, by: &ServerAddress) -> Option<Self> {
        let line = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let epoch = line("cluster_current_epoch").and_then(|epoch| epoch.trim().parse().ok()).unwrap_or(0);
        let is_ok = line("cluster_state").is_some_and(|state| state.trim() == "ok");
        let Value::Array(entries) = slots else { return None };
        let ranges: Option<Vec<SlotRange>> = entries.iter().map(|entry| range(entry, by)).collect();
        ranges.map(|ranges| Self { is_ok, epoch, ranges })
    }
}

/// Parses an entry: first slot, last slot, owner, replicas of the owner.
fn range(entry: &Value, by: &ServerAddress) -> Option<SlotRange> {
    let Value::Array(parts) = entry else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(owner), ..] = &parts[..] else { return None };
    let [host, Value::Int(port), rest @ ..] = &owner[..] else { return None };
    // "?" means that the node should announce a host name but has none. The additional endpoints follow the id.
    let host = text(host).filter(|host| *host != "?").or_else(|| field(rest.get(1)?, "ip")).unwrap_or_default();
    let owner = ServerAddress::new(host, u16::try_from(*port).ok()?).with_default_host(by);
    Some(SlotRange { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, owner })
}

fn command(words: [&str; 2]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(&words[..]);
    cmd
}

fn explain_no_cluster(failure: CallFailure) -> CallFailure {
    if failure.text().contains("cluster support disabled") {
        return failure.because("the server is not part of a cluster; use redis://");
    }
    failure
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn entry(first: i64, last: i64, host: Value, rest: Vec<Value>) -> Value {
        let owner = Value::Array([vec![host, Value::Int(7), bulk("id")], rest].concat());
        Value::Array(vec![Value::Int(first), Value::Int(last), owner])
    }

    fn read(entry: Value) -> Option<ClusterView> {
        let info = "cluster_state:ok\r\ncluster_current_epoch:6\r\n";
        ClusterView::read(info, &Value::Array(vec![entry]), &ServerAddress::new("seed", 1))
    }

    #[test]
    fn only_the_part_in_braces_is_hashed() {
        // The example of the cluster specification.
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("{user1000}.following"), slot_of("{user1000}.followers"));
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"));
        assert_eq!(slot_of("foo{bar}{zap}"), slot_of("bar"));
        assert_ne!(slot_of("foo{}{bar}"), slot_of("bar"));
    }

    #[test]
    fn a_node_without_a_host_has_the_host_of_the_node_that_named_it() {
        let ip = Value::Array(vec![bulk("ip"), bulk("10.0.0.1")]);
        for (host, rest, owner) in [
            (bulk("10.0.0.9"), vec![], "10.0.0.9"),
            (bulk(""), vec![], "seed"),
            (Value::Nil, vec![], "seed"),
            (bulk("?"), vec![], "seed"),
            (bulk("?"), vec![ip], "10.0.0.1"),
        ] {
            let view = read(entry(0, 5, host, rest)).unwrap();
            assert_eq!((view.is_ok, view.epoch), (true, 6));
            assert_eq!(view.ranges, [SlotRange { first: 0, last: 5, owner: ServerAddress::new(owner, 7) }]);
        }
    }

    #[test]
    fn malformed_cluster_slots_replies_are_rejected() {
        for entry in
            [Value::Nil, Value::Array(vec![]), entry(-1, 5, bulk("a"), vec![]), entry(0, 70_000, bulk("a"), vec![])]
        {
            assert_eq!(read(entry), None);
        }
    }
}

//! The nodes of a store that distributes its keys over several servers.
use std::fmt;

use super::StoreNode;
use crate::Key;

/// A map from keys to nodes, for a store whose nodes fail independently.
///
/// A consumer uses the map to defer only the deliveries of a failed node. Both methods are called for each claim, so they must
/// return at once, without I/O.
///
/// # Laws
/// `reported_capabilities_work`.
pub trait StoreNodes: fmt::Debug + Send + Sync {
    /// Returns the node that has the key, as far as the store knows. `None` if no node is known to have the key.
    fn node_of(&self, key: &Key) -> Option<StoreNode>;

    /// Returns the number of nodes that have keys.
    fn node_count(&self) -> usize;
}

//! The nodes of a store that distributes its keys over several servers.
use std::fmt;
use std::sync::Arc;

use crate::Key;

/// The name of one node of a store, such as `10.0.0.1:6379`. Contains no credentials. A clone is cheap.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StoreNode(Arc<str>);

impl StoreNode {
    /// Creates a node with this name. The name appears in logs, so it must not contain credentials.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StoreNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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

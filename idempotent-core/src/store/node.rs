//! The name of one node of a store.
use std::fmt;
use std::sync::Arc;

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

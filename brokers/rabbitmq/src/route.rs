//! The route of a message.

/// The destination of a message: an exchange and a routing key.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub struct Route {
    pub(crate) exchange: String,
    pub(crate) key: String,
}

impl Route {
    /// Creates a route to this queue.
    pub fn queue(name: impl Into<String>) -> Self {
        Self::exchange("", name)
    }

    /// Creates a route to an exchange, with a routing key.
    pub fn exchange(name: impl Into<String>, key: impl Into<String>) -> Self {
        Self { exchange: name.into(), key: key.into() }
    }
}

/// Returns the topic of an [`OutboundMessage`](idempotent_mq::OutboundMessage): the queue, or `EXCHANGE/ROUTING KEY`.
impl From<Route> for String {
    fn from(Route { exchange, key }: Route) -> Self {
        if exchange.is_empty() && !key.contains('/') { key } else { format!("{exchange}/{key}") }
    }
}

impl From<&Route> for String {
    fn from(route: &Route) -> Self {
        route.clone().into()
    }
}

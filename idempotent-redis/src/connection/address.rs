//! Host and port of a server, and the credentials for it.
use std::fmt;
use std::sync::Arc;

/// Host and port of a server.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct ServerAddress {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl ServerAddress {
    pub(crate) fn new(host: impl Into<Arc<str>>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Parses `host:port` or `[v6]:port`. Addresses announced by cluster nodes have no brackets. Returns `None` without
    /// a port.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port > 0)?;
        Some(Self::new(host, port))
    }

    /// Returns the address with the host of `other` if the host is empty. A node that announces no host runs on the
    /// host of the node that named it.
    pub(crate) fn with_default_host(self, other: &Self) -> Self {
        if self.host.is_empty() { Self { host: other.host.clone(), ..self } } else { self }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// User and password.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        f.debug_struct("Credentials").field("user", &self.user).field("password", &password).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_an_ipv6_or_empty_host_and_must_have_a_port() {
        for (text, host, port) in
            [("a:1", "a", 1), ("[::1]:7", "::1", 7), ("fe80::2:6379", "fe80::2", 6379), (":6379", "", 6379)]
        {
            assert_eq!(ServerAddress::parse(text), Some(ServerAddress::new(host, port)), "{text}");
        }
        for text in ["", "a", "a:", "a:0", "a:x", "a:70000"] {
            assert_eq!(ServerAddress::parse(text), None, "{text}");
        }
        assert_eq!(ServerAddress::new("::1", 7).to_string(), "[::1]:7");
        assert_eq!(
            ServerAddress::new("", 7).with_default_host(&ServerAddress::new("a", 1)),
            ServerAddress::new("a", 7)
        );
    }
}

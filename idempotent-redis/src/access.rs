//! How a server is reached: every client of the library is made here.
use std::fmt;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::failure::Failure;

/// Host and port.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Address {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Address {
    pub(crate) fn new(host: impl Into<Arc<str>>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// "host:port", or "[v6]:port"; what a node announces has no brackets. `None` without a port.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port > 0)?;
        Some(Self::new(host, port))
    }

    /// A node that announces no host is where the one is that named it.
    pub(crate) fn beside(self, other: &Self) -> Self {
        if self.host.is_empty() { Self { host: other.host.clone(), ..self } } else { self }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What is the same for all servers of a kind: who we are, and whether it is encrypted.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) tls: bool,
    pub(crate) login: RedisConnectionInfo,
}

impl Access {
    /// A client for the server at this address; nothing is connected yet.
    ///
    /// # Errors
    /// `Schema` where the settings contradict each other.
    pub(crate) fn client(&self, at: &Address) -> Result<redis::Client, Failure> {
        let (host, port) = (at.host.to_string(), at.port);
        let addr = if self.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        // Its own values are replaced; there is no other way to make one.
        let info = "redis://localhost".into_connection_info().map_err(|e| Failure::setting(&e))?;
        client(info.set_addr(addr).set_redis_settings(self.login.clone()))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// A client that hears pushes on its connections.
pub(crate) fn client(info: ConnectionInfo) -> Result<redis::Client, Failure> {
    let login = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    redis::Client::open(info.set_redis_settings(login)).map_err(|e| Failure::setting(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_six_or_no_host_and_has_a_port() {
        for (text, host, port) in
            [("a:1", "a", 1), ("[::1]:7", "::1", 7), ("fe80::2:6379", "fe80::2", 6379), (":6379", "", 6379)]
        {
            assert_eq!(Address::parse(text), Some(Address::new(host, port)), "{text}");
        }
        for text in ["", "a", "a:", "a:0", "a:x", "a:70000"] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
        assert_eq!(Address::new("::1", 7).to_string(), "[::1]:7");
        assert_eq!(Address::new("", 7).beside(&Address::new("a", 1)), Address::new("a", 7));
    }
}

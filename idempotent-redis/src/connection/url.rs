//! Parsing of store URLs.
use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use idempotent_core::__private::url::{Authority, authority, decoded, masked};
use idempotent_core::{StoreError, StoreErrorKind};
use redis::ConnectionAddr;

use crate::connection::address::{Credentials, ServerAddress};

/// A parsed store URL.
#[derive(Clone, Debug)]
pub(crate) struct RedisUrl {
    pub(crate) location: ServerLocation,
    pub(crate) credentials: Credentials,
    /// Database index.
    pub(crate) db: u32,
    pub(crate) tls: bool,
}

/// The servers that hold the records.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ServerLocation {
    Single {
        server: ServerEndpoint,
    },
    /// Sentinels, and the name under which they know the primary.
    Sentinel {
        sentinels: Vec<ServerAddress>,
        primary: String,
    },
    /// Some nodes of a cluster.
    Cluster {
        nodes: Vec<ServerAddress>,
    },
}

/// The endpoint of one server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ServerEndpoint {
    Tcp(ServerAddress),
    Unix(PathBuf),
}

impl RedisUrl {
    /// Returns the server, the user and the database of a client.
    ///
    /// # Errors
    /// `Schema` if the client connects in another way.
    pub(crate) fn of(client: &redis::Client) -> Result<Self, StoreError> {
        let refused = |text: &str| StoreError::new(StoreErrorKind::Schema).because(text);
        let info = client.get_connection_info();
        let server = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                ServerEndpoint::Tcp(ServerAddress::new(&**host, *port))
            }
            ConnectionAddr::Unix(path) => ServerEndpoint::Unix(path.clone()),
            _ => return Err(refused("the client connects neither by TCP nor by a socket; open the store by a URL")),
        };
        let settings = info.redis_settings();
        let db = u32::try_from(settings.db()).map_err(|_| refused("the database of the client is negative"))?;
        let [user, password] = [settings.username(), settings.password()].map(|text| text.map(str::to_owned));
        Ok(Self {
            location: ServerLocation::Single { server },
            credentials: Credentials { user, password },
            db,
            tls: false,
        })
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// `Schema`, with the invalid part and without passwords.
    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        let invalid = |part: String| {
            let text = format!("invalid store url `{}`: {part}", masked(text));
            StoreError::new(StoreErrorKind::Schema).because(text)
        };
        parse(text).map_err(invalid)
    }
}

/// An invalid part of a URL, with the remedy. The text contains no password.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidUrl(String);

impl fmt::Display for InvalidUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for InvalidUrl {}

/// Checks a URL without connecting.
pub(crate) fn check(url: &str) -> Result<(), InvalidUrl> {
    parse(url).map(drop).map_err(InvalidUrl)
}

fn parse(text: &str) -> Result<RedisUrl, String> {
    if text.trim().is_empty() {
        return Err("it is empty; use `redis://HOST:PORT`".into());
    }
    if text.contains(char::is_control) {
        return Err("a control character or line break is in it; remove it".into());
    }
    let (scheme, rest) = text.split_once(':').ok_or("a colon is missing after the scheme; use `redis://HOST:PORT`")?;
    let scheme = scheme.to_ascii_lowercase();
    let (kind, tls) = match &*scheme {
        "redis" => (UrlScheme::Single, false),
        "rediss" => (UrlScheme::Single, true),
        "redis+unix" => (UrlScheme::Unix, false),
        "redis+sentinel" => (UrlScheme::Sentinel, false),
        "rediss+sentinel" => (UrlScheme::Sentinel, true),
        "redis+cluster" => (UrlScheme::Cluster, false),
        "rediss+cluster" => (UrlScheme::Cluster, true),
        _ => {
            let near = SCHEMES.split(", ").map(|known| (strsim::osa_distance(&scheme, known.trim_matches('`')), known));
            let meant = near.min().filter(|(distance, _)| *distance <= 2 && distance * 2 < scheme.len());
            let meant = meant.map_or_else(String::new, |(_, known)| format!("; did you mean {known}?"));
            return Err(format!("the scheme `{scheme}` is not one of {SCHEMES}{meant}"));
        }
    };
    let rest = rest.strip_prefix("//").ok_or_else(|| format!("`//` is missing after `{scheme}:`"))?;
    kind.take(authority(rest)?, tls)
}

const SCHEMES: &str =
    "`redis`, `rediss`, `redis+unix`, `redis+sentinel`, `rediss+sentinel`, `redis+cluster`, `rediss+cluster`";

#[derive(Clone, Copy, PartialEq)]
enum UrlScheme {
    Single,
    Unix,
    Sentinel,
    Cluster,
}

const REDIS: u16 = 6379;
const SENTINEL: u16 = 26379;

impl UrlScheme {
    fn take(self, parts: Authority<'_>, tls: bool) -> Result<RedisUrl, String> {
        let credentials = credentials(parts.user)?;
        if self == Self::Unix {
            return unix(&parts, credentials);
        }
        if parts.tail.contains(['?', '#']) {
            return Err("`?` and `#` are not supported; set options with `RedisStore::builder`".into());
        }
        let port = if self == Self::Sentinel { SENTINEL } else { REDIS };
        let mut hosts = parts.hosts.iter().map(|host| address(*host, port)).collect::<Result<Vec<_>, _>>()?;
        let path = parts.tail.trim_start_matches('/');
        let (location, db) = match self {
            Self::Single | Self::Unix => match (hosts.pop(), hosts.is_empty()) {
                (Some(address), true) => {
                    (ServerLocation::Single { server: ServerEndpoint::Tcp(address) }, database(path)?)
                }
                _ => return Err("more than one host; use `redis+sentinel://` or `redis+cluster://`".into()),
            },
            Self::Sentinel => {
                let (primary, db) = path.split_once('/').unwrap_or((path, ""));
                let primary = decoded(primary).filter(|name| !name.is_empty());
                let primary = primary
                    .ok_or("the name of the primary is missing; use `redis+sentinel://HOST:26379,HOST:26379/NAME`")?;
                (ServerLocation::Sentinel { sentinels: hosts, primary }, database(db)?)
            }
            Self::Cluster if database(path)? == 0 => (ServerLocation::Cluster { nodes: hosts }, 0),
            Self::Cluster => return Err("a cluster has only one database, 0; remove the index".into()),
        };
        Ok(RedisUrl { location, credentials, db, tls })
    }
}

fn credentials(user: Option<&str>) -> Result<Credentials, String> {
    let Some(user) = user else { return Ok(Credentials::default()) };
    let (name, password) = user.split_once(':').ok_or(
        "a user and no password; use `redis://USER:PASSWORD@HOST`, or `redis://:PASSWORD@HOST` without a user",
    )?;
    // Invalid percent codes were rejected with the authority.
    let part = |text: &str| decoded(text).filter(|text| !text.is_empty());
    let (user, password) = (part(name), part(password));
    if user.is_some() && password.is_none() {
        return Err("the password is empty".into());
    }
    Ok(Credentials { user, password })
}

fn address((host, port): (&str, Option<u16>), default: u16) -> Result<ServerAddress, String> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bare {
        Some(ip) if ip.parse::<std::net::Ipv6Addr>().is_ok() => ip,
        Some(_) => return Err("the host in brackets is not an IPv6 address".into()),
        None if host.is_empty() => return Err("a host is missing".into()),
        None if host.contains([':', '[', ']']) => {
            return Err("an IPv6 address must be in brackets; use `[::1]:6379`".into());
        }
        None => host,
    };
    Ok(ServerAddress::new(host, port.unwrap_or(default)))
}

fn database(path: &str) -> Result<u32, String> {
    match path {
        "" => Ok(0),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.len() < 10 => {
            digits.parse().map_err(|_| "the database index is out of range".to_owned())
        }
        _ => Err("the database is not a number; use an index such as `/0`".into()),
    }
}

/// Parses the parts of `redis+unix://[USER:PASSWORD@]/PATH[?db=N]`.
fn unix(parts: &Authority<'_>, credentials: Credentials) -> Result<RedisUrl, String> {
    if parts.hosts != [("", None)] {
        return Err("a socket path must be absolute; use `redis+unix:///PATH`".into());
    }
    let (path, settings) = parts.tail.split_once('?').unwrap_or((parts.tail, ""));
    let db = match settings.split_once('=') {
        Some(("db", index)) => database(index)?,
        None if settings.is_empty() => 0,
        _ => return Err("unknown parameter; only `db` may follow `?`".into()),
    };
    let path =
        decoded(path).filter(|path| path.len() > 1).ok_or("the socket path is missing; use `redis+unix:///PATH`")?;
    let location = ServerLocation::Single { server: ServerEndpoint::Unix(path.into()) };
    Ok(RedisUrl { location, credentials, db, tls: false })
}

impl fmt::Display for ServerEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;

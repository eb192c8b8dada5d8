//! Where a URL says that the servers are.
use idempotent_core::{StoreError, StoreErrorKind};
use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::access::{Access, Address};

/// What a URL names.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// One server.
    Single(Box<ConnectionInfo>),
    /// Sentinels, and the name they know the primary by.
    Sentinel { sentinels: Vec<Address>, name: String, servers: Access },
    /// Some nodes of a cluster.
    Cluster { seeds: Vec<Address>, nodes: Access },
}

const SENTINEL_PORT: u16 = 26_379;
const PORT: u16 = 6_379;

impl Place {
    /// # Errors
    /// `Schema` for what is none; the text does not quote it, since it may hold a password.
    pub(crate) fn of(url: &str) -> Result<Self, StoreError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("a url begins with redis://"))?;
        let (tls, kind) = match scheme.split_once('+') {
            None => return Ok(Self::Single(Box::new(single(url)?))),
            Some(("redis", kind)) => (false, kind),
            Some(("rediss", kind)) => (true, kind),
            Some(_) => return Err(wrong("the scheme is none of redis, rediss, with +sentinel or +cluster")),
        };
        let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        // The client library reads the user, the password and the database, percent-encoded or not.
        let login = login.map_or_else(String::new, |login| format!("{login}@"));
        let access = |db: &str| {
            let info = single(&format!("redis://{login}localhost/{db}"))?;
            Ok::<_, StoreError>(Access { tls, login: info.redis_settings().clone() })
        };
        match kind {
            "sentinel" => {
                let (name, db) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(wrong("redis+sentinel://host:port/NAME: the primary's name is missing"));
                }
                let sentinels = addresses(hosts, SENTINEL_PORT)?;
                Ok(Self::Sentinel { sentinels, name: name.to_owned(), servers: access(db)? })
            }
            "cluster" if matches!(path, "" | "0") => {
                Ok(Self::Cluster { seeds: addresses(hosts, PORT)?, nodes: access("")? })
            }
            "cluster" => Err(wrong("a cluster has only database 0: leave the url's path empty")),
            _ => Err(wrong("the scheme is none of redis, rediss, with +sentinel or +cluster")),
        }
    }
}

fn single(url: &str) -> Result<ConnectionInfo, StoreError> {
    url.into_connection_info().map_err(|e| StoreError::new(StoreErrorKind::Schema).because(e.to_string()))
}

fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, StoreError> {
    let one = |host: &str| match host.ends_with(']') || !host.contains(':') {
        true if host.is_empty() => None,
        true => Some(Address::new(host.trim_start_matches('[').trim_end_matches(']'), port)),
        false => Address::parse(host).filter(|at| !at.host.is_empty()),
    };
    let all: Option<Vec<_>> = hosts.split(',').map(one).collect();
    all.ok_or_else(|| wrong("hosts are host:port,host:port"))
}

fn wrong(why: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Schema).because(why)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_a_name_a_database_and_who_we_are() {
        let place = Place::of("rediss+sentinel://me:p%40ss@a:1,[::1]:2,c/mymaster/3").unwrap();
        let Place::Sentinel { sentinels, name, servers } = place else { panic!("{place:?}") };
        assert_eq!(sentinels, [Address::new("a", 1), Address::new("::1", 2), Address::new("c", 26_379)]);
        assert_eq!((name.as_str(), servers.tls, servers.login.db()), ("mymaster", true, 3));
        assert_eq!((servers.login.username(), servers.login.password()), (Some("me"), Some("p@ss")));
    }

    #[test]
    fn seeds_of_a_cluster() {
        let place = Place::of("redis+cluster://:secret@a:1,b").unwrap();
        let Place::Cluster { seeds, nodes } = place else { panic!("{place:?}") };
        assert_eq!(seeds, [Address::new("a", 1), Address::new("b", 6_379)]);
        assert_eq!((nodes.tls, nodes.login.password()), (false, Some("secret")));
    }

    #[test]
    fn what_is_no_place_is_refused_without_its_password() {
        for url in [
            "localhost",
            "redis+sentinel://:secret@a:1",
            "redis+sentinel://:secret@a:1/",
            "redis+sentinel://:secret@/name",
            "redis+sentinel://:secret@a:99999/name",
            "redis+cluster://:secret@a:1/3",
            "redis+cluster://:secret@",
            "redis+ring://:secret@a:1",
            "valkey+cluster://:secret@a:1",
        ] {
            let error = Place::of(url).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Schema, "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}

//! Product and version of a server.
use std::fmt;

use crate::scripts::Dialect;

/// The reply to `INFO`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerInfo<'a>(pub(crate) &'a str);

impl<'a> ServerInfo<'a> {
    pub(crate) fn line(self, name: &str) -> Option<&'a str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    pub(crate) fn number(self, name: &str) -> Option<u64> {
        self.line(name)?.parse().ok()
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ServerFlavour {
    Redis,
    Valkey,
    Redict,
    KeyDb,
    Dragonfly,
    Garnet,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ServerVersion {
    pub(crate) flavour: ServerFlavour,
    /// Version number of the product.
    number: String,
    /// Major and minor version of the Redis whose commands the server supports.
    redis: (u32, u32),
}

/// First Redis version with all commands of the scripts.
const OLDEST: (u32, u32) = (6, 2);
/// First versions with `SET … IFEQ`.
const COMPARES: [(ServerFlavour, (u32, u32)); 2] = [(ServerFlavour::Redis, (8, 4)), (ServerFlavour::Valkey, (8, 1))];
/// First Redis version with script flags, and with `SET … NX GET`.
const FLAGS: (u32, u32) = (7, 0);

impl ServerVersion {
    /// Returns the version in the reply to `INFO`, or `None` if there is none.
    pub(crate) fn of(info: ServerInfo<'_>) -> Option<Self> {
        let redis = info.line("redis_version")?;
        let is_keydb = info.line("mvcc_depth").is_some()
            || info.line("executable").is_some_and(|path| path.ends_with("keydb-server"));
        let (flavour, number) = if let Some(number) = info.line("valkey_version") {
            (ServerFlavour::Valkey, number)
        } else if let Some(number) = info.line("redict_version") {
            (ServerFlavour::Redict, number)
        } else if let Some(number) = info.line("dragonfly_version") {
            (ServerFlavour::Dragonfly, number.trim_start_matches("df-v"))
        } else if let Some(number) = info.line("garnet_version") {
            (ServerFlavour::Garnet, number)
        } else if is_keydb {
            (ServerFlavour::KeyDb, redis)
        } else {
            (ServerFlavour::Redis, redis)
        };
        Some(Self { flavour, number: number.to_owned(), redis: first_two(redis)? })
    }

    /// Returns the version in the reply to `HELLO`.
    pub(crate) fn greeted(server: &str, number: &str) -> Option<Self> {
        let flavour = match server {
            "redis" => ServerFlavour::Redis,
            "valkey" => ServerFlavour::Valkey,
            _ => return None,
        };
        Some(Self { flavour, number: number.to_owned(), redis: first_two(number)? })
    }

    pub(crate) fn is_too_old(&self) -> bool {
        self.redis < OLDEST
    }

    /// Returns whether the tests run on this product.
    pub(crate) fn is_tested(&self) -> bool {
        matches!(self.flavour, ServerFlavour::Redis | ServerFlavour::Valkey | ServerFlavour::Redict)
    }

    /// Returns whether the server has `SET … IFEQ`.
    pub(crate) fn compares_natively(&self) -> bool {
        let number = first_two(&self.number);
        COMPARES.iter().any(|(flavour, first)| *flavour == self.flavour && number >= Some(*first))
    }

    pub(crate) fn dialect(&self) -> Dialect {
        if self.redis >= FLAGS { Dialect::Flags } else { Dialect::Plain }
    }
}

fn first_two(number: &str) -> Option<(u32, u32)> {
    let mut parts = number.split('.').map_while(|part| part.parse().ok());
    Some((parts.next()?, parts.next()?))
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.flavour {
            ServerFlavour::Redis => return write!(f, "Redis {}", self.number),
            ServerFlavour::Valkey => "Valkey",
            ServerFlavour::Redict => "Redict",
            ServerFlavour::KeyDb => "KeyDB",
            ServerFlavour::Dragonfly => "Dragonfly",
            ServerFlavour::Garnet => "Garnet",
        };
        write!(f, "{name} {} (as Redis {}.{})", self.number, self.redis.0, self.redis.1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The identifying `INFO` lines of each server, unchanged.
    const REDIS_7: &str = "# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:00000000\r\nredis_mode:standalone\r\n";
    const REDIS_6: &str = "# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n";
    const REDIS_5: &str = "# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\n";
    const VALKEY: &str = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.4\r\n";
    const REDICT: &str = "# Server\r\nredis_version:7.2.4\r\nredict_version:7.3.6\r\nredis_mode:standalone\r\n";
    const KEYDB: &str = "# Server\r\nredis_version:6.3.4\r\nredis_mode:standalone\r\nexecutable:/data/keydb-server\r\n";
    const KEYDB_ELSEWHERE: &str = "# Server\r\nredis_version:6.3.4\r\n# KeyDB\r\nmvcc_depth:0\r\n";
    const DRAGONFLY: &str =
        "# Server\r\nredis_version:7.4.0\r\ndragonfly_version:df-v1.40.1\r\nredis_mode:standalone\r\n";
    const OLD_DRAGONFLY: &str = "# Server\r\nredis_version:6.2.11\r\ndragonfly_version:df-v1.14.2\r\n";

    #[test]
    fn each_product_is_recognized_with_its_version() {
        for (info, shown, dialect) in [
            (REDIS_7, "Redis 7.0.15", Dialect::Flags),
            (REDIS_6, "Redis 6.2.14", Dialect::Plain),
            (VALKEY, "Valkey 8.1.4 (as Redis 7.2)", Dialect::Flags),
            (REDICT, "Redict 7.3.6 (as Redis 7.2)", Dialect::Flags),
            (KEYDB, "KeyDB 6.3.4 (as Redis 6.3)", Dialect::Plain),
            (KEYDB_ELSEWHERE, "KeyDB 6.3.4 (as Redis 6.3)", Dialect::Plain),
            (DRAGONFLY, "Dragonfly 1.40.1 (as Redis 7.4)", Dialect::Flags),
            (OLD_DRAGONFLY, "Dragonfly 1.14.2 (as Redis 6.2)", Dialect::Plain),
        ] {
            let version = ServerVersion::of(ServerInfo(info)).unwrap();
            assert_eq!((version.to_string().as_str(), version.dialect()), (shown, dialect));
            assert!(!version.is_too_old());
            let tested = ["Redis", "Valkey", "Redict"];
            assert_eq!(version.is_tested(), tested.iter().any(|name| shown.starts_with(name)));
        }
    }

    #[test]
    fn versions_without_the_required_commands_are_too_old() {
        assert!(ServerVersion::of(ServerInfo(REDIS_5)).unwrap().is_too_old());
        assert!(ServerVersion::of(ServerInfo("redis_version:6.1.240\r\n")).unwrap().is_too_old());
        assert_eq!(ServerVersion::of(ServerInfo("# Server\r\nredis_version:unknown\r\n")), None);
        assert_eq!(ServerVersion::of(ServerInfo("")), None);
        assert!(ServerVersion::greeted("redis", "6.0.16").unwrap().is_too_old());
    }
}

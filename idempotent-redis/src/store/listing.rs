//! Visiting of all keys with `SCAN`, which does not block the server, and the purge.
use async_trait::async_trait;
use idempotent_core::{Key, Purge, StoreError, StoreErrorKind};
use redis::{Cmd, Value};

use crate::RedisStore;
use crate::batching::batcher::CallBatcher;
use crate::failure::CallFailure;
use crate::topology::Topology;

/// Number of table slots that one `SCAN` visits. A search reads the keys of one `SCAN` by one script. The server executes no other
/// command meanwhile, so both must be short: about 0.1 ms each.
pub(super) const SCAN_COUNT: usize = 32;
/// Pattern that matches the end of every record key. Other keys may share the server.
pub(super) const KEY_PATTERN: &str = "*:{??????????????????????}";

/// Position of a listing: a server, a cursor on that server, and the first rank of the cursor's keys that is still to
/// be listed.
///
/// A count of the listed keys would be wrong if one of them is deleted before the next page. The server is identified
/// by a hash of its address, because its index may change before the next page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ListingCursor {
    pub(super) server: u32,
    pub(super) cursor: u64,
    pub(super) from: u32,
}

impl ListingCursor {
    /// Packs 32 bits of server, 64 bits of cursor and 32 bits of rank.
    pub(super) fn pack(self) -> u128 {
        u128::from(self.server) << 96 | u128::from(self.cursor) << 32 | u128::from(self.from)
    }

    pub(super) fn unpack(packed: u128) -> Self {
        let part = |shift: u32, bits: u32| (packed >> shift) & ((1_u128 << bits) - 1);
        Self { server: part(96, 32) as u32, cursor: part(32, 64) as u64, from: part(0, 32) as u32 }
    }

    pub(super) fn next_server(self) -> Option<Self> {
        self.server.checked_add(1).map(|server| Self { server, ..Self::default() })
    }
}

/// Returns the rank of a key within its cursor: the first bits of its hash.
pub(super) fn rank(key: &Key) -> u32 {
    (key.hash() >> 96) as u32
}

/// Scans for keys with the pattern from a cursor, which the next one replaces.
pub(super) async fn scan(
    batcher: &CallBatcher,
    pattern: &str,
    cursor: u64,
    count: usize,
) -> Result<(u64, Vec<Key>), CallFailure> {
    let mut cmd = Cmd::new();
    cmd.arg("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(count);
    let unexpected_reply = || CallFailure::ambiguous("unexpected reply to SCAN; is a proxy rewriting responses?");
    let Value::Array(reply) = batcher.connection().send(&cmd).await? else { return Err(unexpected_reply()) };
    let [Value::BulkString(cursor), Value::Array(keys)] = &reply[..] else { return Err(unexpected_reply()) };
    let cursor =
        std::str::from_utf8(cursor).ok().and_then(|cursor| cursor.parse().ok()).ok_or_else(unexpected_reply)?;
    let key = |value: &Value| match value {
        Value::BulkString(bytes) => Key::from_text(std::str::from_utf8(bytes).ok()?),
        _ => None,
    };
    Ok((cursor, keys.iter().filter_map(key).collect()))
}

/// Returns the server of a position. If that server is gone, returns the start of the next one.
pub(super) fn resume_at<T>(servers: &[(u32, T)], place: ListingCursor) -> Option<(&T, ListingCursor)> {
    let (server, batcher) = servers.iter().find(|(server, _)| *server >= place.server)?;
    let begins = ListingCursor { server: *server, ..ListingCursor::default() };
    Some((batcher, if *server == place.server { place } else { begins }))
}

/// Sorts servers by number. A name has the same number regardless of the other servers.
fn numbered<T>(servers: impl IntoIterator<Item = (String, T)>, number: fn(&str) -> u32) -> Vec<(u32, T)> {
    let mut all: Vec<(u32, String, T)> =
        servers.into_iter().map(|(name, server)| (number(&name), name, server)).collect();
    all.sort_unstable_by(|(one, name, _), (other, its, _)| (one, name).cmp(&(other, its)));
    let mut least = 0;
    let apart = all.into_iter().map(|(number, _, server)| {
        // Servers with equal numbers get consecutive ones.
        let number = number.max(least);
        least = number.saturating_add(1);
        (number, server)
    });
    apart.collect()
}

/// Hashes with FNV-1a, which gives the same result in every process and release.
fn hashed(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl RedisStore {
    /// Returns the servers that hold keys, with their numbers.
    pub(super) async fn servers(&self, refresh: bool) -> Result<Vec<(u32, CallBatcher)>, StoreError> {
        let batchers = self.0.topology.batchers(refresh).await?;
        Ok(match &self.0.topology {
            Topology::Cluster(_) => {
                numbered(batchers.into_iter().map(|batcher| (batcher.connection().name(), batcher)), hashed)
            }
            // There is only one server, whichever it is.
            Topology::Single(_) | Topology::Sentinel(_) => batchers.into_iter().map(|batcher| (0, batcher)).collect(),
        })
    }

    /// Returns whether a key belongs to this store's namespace.
    pub(super) fn is_own(&self, key: &Key) -> bool {
        // The namespace as it is encoded in keys.
        let namespace = Key::from_parts(&self.0.checks.namespace, 0);
        key.name().strip_prefix(namespace.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    }
}

#[async_trait]
impl Purge for RedisStore {
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
        self.0.permit_writes()?;
        let mut gone = 0;
        for batcher in self.0.topology.batchers(true).await? {
            let mut cursor = 0;
            loop {
                let (next, keys) = scan(&batcher, KEY_PATTERN, cursor, SCAN_COUNT).await?;
                for key in &keys {
                    if gone >= at_most {
                        return Ok(gone);
                    }
                    gone += match self.0.purge(key).await {
                        Err(error) if error.kind() == StoreErrorKind::Denied && !self.is_own(key) => 0,
                        purged => purged?,
                    };
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(gone)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn all(names: &[&str]) -> Vec<(u32, String)> {
        numbered(names.iter().map(|name| ((*name).to_owned(), (*name).to_owned())), hashed)
    }

    /// Returns the servers that a listing visits if the servers change after the first one.
    fn visited(before: &[&str], after: &[&str]) -> Vec<String> {
        let (before, after) = (all(before), all(after));
        let (first, place) = resume_at(&before, ListingCursor::default()).unwrap();
        let mut visited = vec![first.clone()];
        let mut next = place.next_server();
        while let Some((name, place)) = next.and_then(|place| resume_at(&after, ListingCursor::unpack(place.pack()))) {
            visited.push(name.clone());
            next = place.next_server();
        }
        visited.sort_unstable();
        visited
    }

    #[test]
    fn a_listing_visits_every_server_even_if_slots_move() {
        let whole = ["10.0.0.1:7", "10.0.0.2:7", "10.0.0.3:7"];
        for after in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
            assert_eq!(visited(&whole, &after.map(|at| whole[at])), whole, "{after:?}");
        }
        let mut without: Vec<&str> = whole.to_vec();
        without.retain(|name| *name != all(&whole)[1].1);
        assert_eq!(visited(&whole, &without), without);
    }

    #[test]
    fn a_cursor_of_a_removed_server_resumes_at_the_next_one() {
        let servers = [(3, 'a'), (9, 'b')];
        let place = ListingCursor { server: 3, cursor: 70, from: 5 };
        assert_eq!(resume_at(&servers, place), Some((&'a', place)));
        assert_eq!(
            resume_at(&servers[1..], place),
            Some((&'b', ListingCursor { server: 9, ..ListingCursor::default() }))
        );
        assert_eq!(resume_at(&servers, ListingCursor { server: 10, ..place }), None);
    }

    #[test]
    fn servers_with_equal_hashes_get_different_numbers() {
        let same = numbered(["b", "a"].map(|name| (name.to_owned(), name)), |_| 7);
        assert_eq!(same, [(7, "a"), (8, "b")]);
    }
}

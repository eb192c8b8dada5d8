//! Listing and purging of records with `SCAN`, which does not block the server.
use async_trait::async_trait;
use idempotent_core::protocol::live;
use idempotent_core::{Browse, Key, Purge, RecordEntry, RecordPage, StoreError, StoreErrorKind};
use redis::{Cmd, Value};

use crate::RedisStore;
use crate::batching::batcher::CallBatcher;
use crate::batching::call::ScriptCall;
use crate::failure::CallFailure;
use crate::store::BUDGET;
use crate::store::replies;
use crate::topology::Topology;

/// Maximum number of entries of a page.
const MAX_PAGE: usize = 10_000;
/// Number of table slots that one `SCAN` visits.
const SCAN_COUNT: usize = 1_000;
/// Pattern that matches the end of every record key. Other keys may share the server.
const KEY_PATTERN: &str = "*:{??????????????????????}";

/// Position of a listing: a server, a cursor on that server, and the first rank of the cursor's keys that is still to
/// be listed.
///
/// A count of the listed keys would be wrong if one of them is deleted before the next page. The server is identified
/// by a hash of its address, because its index may change before the next page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ListingCursor {
    server: u32,
    cursor: u64,
    from: u32,
}

impl ListingCursor {
    /// Packs 32 bits of server, 64 bits of cursor and 32 bits of rank.
    fn pack(self) -> u128 {
        u128::from(self.server) << 96 | u128::from(self.cursor) << 32 | u128::from(self.from)
    }

    fn unpack(packed: u128) -> Self {
        let part = |shift: u32, bits: u32| (packed >> shift) & ((1_u128 << bits) - 1);
        Self { server: part(96, 32) as u32, cursor: part(32, 64) as u64, from: part(0, 32) as u32 }
    }
}

/// Returns the rank of a key within its cursor: the first bits of its hash.
fn rank(key: &Key) -> u32 {
    (key.hash() >> 96) as u32
}

/// Returns how many of these keys, sorted by hash, fit into `room` without splitting a rank.
fn whole_ranks(keys: &[Key], room: usize) -> usize {
    let Some(first_left) = keys.get(room) else { return keys.len() };
    let whole = keys[..room].iter().rposition(|key| rank(key) != rank(first_left));
    whole.map_or(room, |last| last + 1)
}

/// Scans the keys at a position, without the listed ones. With little room, scans as few keys as the server returns at
/// once.
async fn fitting(batcher: &CallBatcher, place: &ListingCursor, room: usize) -> Result<(u64, Vec<Key>), CallFailure> {
    let mut count = SCAN_COUNT.min(room);
    loop {
        let (cursor, mut keys) = scan(batcher, place.cursor, count).await?;
        keys.retain(|key| rank(key) >= place.from);
        keys.sort_unstable_by_key(Key::hash);
        if keys.len() <= room || count == 1 {
            return Ok((cursor, keys));
        }
        count = count.div_ceil(4).min(count - 1);
    }
}

async fn scan(batcher: &CallBatcher, cursor: u64, count: usize) -> Result<(u64, Vec<Key>), CallFailure> {
    let mut cmd = Cmd::new();
    cmd.arg("SCAN").arg(cursor).arg("MATCH").arg(KEY_PATTERN).arg("COUNT").arg(count);
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

#[async_trait]
impl Browse for RedisStore {
    async fn browse(&self, after: Option<u128>, limit: usize) -> Result<RecordPage, StoreError> {
        let limit = limit.clamp(1, MAX_PAGE);
        let servers = self.servers(after.is_none()).await?;
        let mut next = Some(after.map_or_else(ListingCursor::default, ListingCursor::unpack));
        let mut entries = Vec::new();
        while let Some((batcher, place)) =
            next.filter(|_| entries.len() < limit).and_then(|place| resume_at(&servers, place))
        {
            let room = limit - entries.len();
            let (cursor, keys) = fitting(batcher, &place, room).await?;
            let fits = keys.len() <= room;
            if !fits && !entries.is_empty() {
                // A cursor is not split across pages unless necessary, because the table may grow before the next page.
                break;
            }
            let given = &keys[..whole_ranks(&keys, room)];
            let (own, others): (Vec<&Key>, Vec<&Key>) = given.iter().partition(|key| self.is_own(key));
            entries.extend(self.entries(&own).await?);
            match self.entries(&others).await {
                // The user may have no permission for the keys of other namespaces.
                Err(error) if error.kind() == StoreErrorKind::Denied => {}
                listed => entries.extend(listed?),
            }
            next = match (fits, cursor) {
                (false, _) => Some(ListingCursor { from: given.last().map_or(0, rank).saturating_add(1), ..place }),
                (true, 0) => {
                    place.server.checked_add(1).map(|server| ListingCursor { server, ..ListingCursor::default() })
                }
                (true, cursor) => Some(ListingCursor { cursor, from: 0, ..place }),
            };
        }
        let next = next.and_then(|place| resume_at(&servers, place)).map(|(_, place)| place.pack());
        Ok(RecordPage { entries, next })
    }
}

/// Returns the server of a position. If that server is gone, returns the start of the next one.
fn resume_at<T>(servers: &[(u32, T)], place: ListingCursor) -> Option<(&T, ListingCursor)> {
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
    async fn servers(&self, refresh: bool) -> Result<Vec<(u32, CallBatcher)>, StoreError> {
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
    fn is_own(&self, key: &Key) -> bool {
        // The namespace as it is encoded in keys.
        let namespace = Key::from_parts(&self.0.checks.namespace, 0);
        key.name().strip_prefix(namespace.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    }

    async fn entries(&self, keys: &[&Key]) -> Result<Vec<RecordEntry>, StoreError> {
        let calls: Vec<ScriptCall> = keys.iter().map(|key| ScriptCall::look(key)).collect();
        let reply = self.0.call_all(&calls, BUDGET).await;
        let mut entries = Vec::new();
        for (key, reply) in keys.iter().zip(reply) {
            match reply.and_then(replies::seen) {
                Ok(Some((record, now))) if live(Some(&record), now).is_some() => {
                    entries.push(RecordEntry { key: (*key).clone(), record });
                }
                Ok(_) => {}
                // Unreadable values are skipped, so that they do not hide other records.
                Err(error) if is_unreadable(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }
}

fn is_unreadable(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::UnknownVersion | StoreErrorKind::Foreign)
}

#[async_trait]
impl Purge for RedisStore {
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
        self.0.permit_writes()?;
        let mut gone = 0;
        for batcher in self.0.topology.batchers(true).await? {
            let mut cursor = 0;
            loop {
                let (next, keys) = scan(&batcher, cursor, SCAN_COUNT).await?;
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
        let mut next = place.server.checked_add(1).map(|server| ListingCursor { server, ..ListingCursor::default() });
        while let Some((name, place)) = next.and_then(|place| resume_at(&after, ListingCursor::unpack(place.pack()))) {
            visited.push(name.clone());
            next = place.server.checked_add(1).map(|server| ListingCursor { server, ..ListingCursor::default() });
        }
        visited.sort_unstable();
        visited
    }

    #[test]
    fn keys_of_one_rank_are_not_split_across_pages() {
        let key = |rank: u128, rest: u128| Key::from_parts("n", rank << 96 | rest);
        let keys = [key(1, 0), key(2, 0), key(2, 1), key(2, 2), key(3, 0)];
        let fits: Vec<usize> = (1..=6).map(|room| whole_ranks(&keys, room)).collect();
        assert_eq!(fits, [1, 1, 1, 4, 5, 5]);
        assert_eq!(whole_ranks(&keys[1..], 2), 2, "more of one rank than there is room for: better parted than none");
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

//! The search for records: `SCAN` finds keys, and a script reads those that the filter may select.
use async_trait::async_trait;
use idempotent_core::{
    Key, KeyFilter, PageLimits, RecordPage, Search, StateKind, StoreError, StoreErrorKind, Timestamp,
};
use redis::Cmd;

use crate::RedisStore;
use crate::batching::batcher::CallBatcher;
use crate::batching::call::ScriptCall;
use crate::batching::call::native::parse_time;
use crate::store::listing::{KEY_PATTERN, ListingCursor, SCAN_COUNT, rank, resume_at, scan};
use crate::store::{BUDGET, replies};

/// A page in progress.
struct Searching<'a> {
    filter: &'a KeyFilter,
    pattern: String,
    states: u64,
    keys: usize,
    /// Table slots that may still be visited. Keys of other namespaces cost the server time as well.
    budget: usize,
    /// Number of table slots that the next `SCAN` visits.
    count: usize,
    page: RecordPage,
}

/// The keys of one `SCAN`, sorted by hash.
struct Chunk {
    keys: Vec<Key>,
    found: RecordPage,
    /// The number of found entries up to each examined key.
    entries: Vec<usize>,
    /// The cursor after these keys.
    cursor: u64,
}

#[async_trait]
impl Search for RedisStore {
    async fn search(
        &self,
        filter: &KeyFilter,
        after: Option<u128>,
        limits: PageLimits,
    ) -> Result<RecordPage, StoreError> {
        let servers = self.servers(after.is_none()).await?;
        let limits = limits.bounded();
        let mut searching = Searching {
            filter,
            pattern: format!("{}{KEY_PATTERN}", filter.name_prefix()),
            states: states(filter),
            keys: limits.keys,
            budget: limits.examined,
            count: SCAN_COUNT,
            page: RecordPage::default(),
        };
        let mut next = Some(after.map_or_else(ListingCursor::default, ListingCursor::unpack));
        let mut is_first = true;
        while let Some((batcher, place)) = next.filter(|_| searching.has_room()).and_then(|at| resume_at(&servers, at))
        {
            match self.step(&mut searching, batcher, place, is_first).await? {
                Some(after) => next = after,
                None => break,
            }
            is_first = false;
        }
        let mut page = searching.page;
        if let (Timestamp(0), Some((_, batcher))) = (page.now, servers.first()) {
            page.now = server_time(batcher).await?;
        }
        page.next = next.and_then(|place| resume_at(&servers, place)).map(|(_, place)| place.pack());
        Ok(page)
    }
}

impl RedisStore {
    /// Adds the keys at `place` to the page and returns the next place, or `None` if the page has no room for them.
    ///
    /// The keys of a cursor are not split across pages unless necessary, because the table may grow before the next page.
    async fn step(
        &self,
        searching: &mut Searching<'_>,
        batcher: &CallBatcher,
        place: ListingCursor,
        is_first: bool,
    ) -> Result<Option<Option<ListingCursor>>, StoreError> {
        loop {
            // The rank belongs to the keys of one `SCAN` with the count 1. A larger count would return further keys, and those with
            // lower ranks would be lost.
            let count = if place.from > 0 { 1 } else { searching.count.min(searching.budget) };
            let (cursor, mut keys) = scan(batcher, &searching.pattern, place.cursor, count).await?;
            keys.retain(|key| rank(key) >= place.from);
            keys.sort_unstable_by_key(Key::hash);
            let chunk = self.read(searching, keys, cursor).await?;
            let room = searching.keys - searching.page.len();
            if chunk.keys.len() <= searching.budget && chunk.found.len() <= room {
                let visited = chunk.keys.len().max(count);
                searching.accept(chunk.found, chunk.keys.len(), visited);
                return Ok(Some(match chunk.cursor {
                    0 => place.next_server(),
                    cursor => Some(ListingCursor { cursor, from: 0, ..place }),
                }));
            }
            if !is_first {
                return Ok(None);
            }
            if count == 1 {
                return Ok(Some(searching.split(chunk, room, place)));
            }
            searching.count = count.div_ceil(4).min(count - 1);
        }
    }

    /// Reads the records of keys, as far as the budget permits.
    async fn read(&self, searching: &Searching<'_>, keys: Vec<Key>, cursor: u64) -> Result<Chunk, StoreError> {
        let read = &keys[..keys.len().min(searching.budget)];
        let mut replies: Vec<_> = read.iter().map(|_| None).collect();
        for own in [true, false] {
            let places: Vec<usize> = (0..read.len()).filter(|at| self.is_own(&read[*at]) == own).collect();
            let calls: Vec<ScriptCall> =
                places.iter().map(|at| ScriptCall::search(&read[*at], searching.states)).collect();
            for (at, reply) in places.into_iter().zip(self.0.call_all(&calls, BUDGET).await) {
                match reply {
                    // The user may have no permission for the keys of other namespaces.
                    Err(error) if error.kind() == StoreErrorKind::Denied && !own => {}
                    reply => replies[at] = Some(reply),
                }
            }
        }
        let mut chunk = Chunk { keys: Vec::new(), found: RecordPage::default(), entries: Vec::new(), cursor };
        for (key, reply) in read.iter().zip(replies) {
            let record = match reply {
                Some(Ok(reply)) => {
                    chunk.found.now = Timestamp(reply.now);
                    replies::found(key, reply).transpose()
                }
                Some(Err(error)) => Some(Err(error)),
                None => None,
            };
            if let Some(record) = record {
                chunk.found.add(searching.filter, key.clone(), record)?;
            }
            chunk.entries.push(chunk.found.len());
        }
        chunk.keys = keys;
        Ok(chunk)
    }
}

impl Searching<'_> {
    fn has_room(&self) -> bool {
        self.budget > 0 && self.page.len() < self.keys
    }

    fn accept(&mut self, found: RecordPage, examined: usize, visited: usize) {
        self.page.entries.extend(found.entries);
        self.page.unreadable.extend(found.unreadable);
        self.page.now = self.page.now.max(found.now);
        self.page.examined += examined;
        self.budget = self.budget.saturating_sub(visited);
    }

    /// Accepts the first keys of a chunk that does not fit as a whole.
    fn split(&mut self, mut chunk: Chunk, room: usize, place: ListingCursor) -> Option<ListingCursor> {
        let fit = chunk.entries.partition_point(|entries| *entries <= room);
        let given = &chunk.keys[..whole_ranks(&chunk.keys, fit.max(1))];
        let last = given.last()?;
        chunk.found.entries.retain(|entry| entry.key.hash() <= last.hash());
        chunk.found.unreadable.retain(|record| record.key.hash() <= last.hash());
        let from = rank(last).saturating_add(1);
        self.accept(chunk.found, given.len(), given.len());
        Some(ListingCursor { from, ..place })
    }
}

/// Returns how many of these keys, sorted by hash, fit into `room` without splitting a rank.
fn whole_ranks(keys: &[Key], room: usize) -> usize {
    let Some(first_left) = keys.get(room) else { return keys.len() };
    let whole = keys[..room].iter().rposition(|key| rank(key) != rank(first_left));
    whole.map_or(room, |last| last + 1)
}

/// Returns the sum for the script of the states that a filter selects.
fn states(filter: &KeyFilter) -> u64 {
    let bit = |state: &StateKind| match state {
        StateKind::Absent => 0,
        StateKind::Vacant => 1,
        StateKind::Consuming => 2,
        StateKind::Consumed => 4,
        StateKind::Failed => 8,
        StateKind::Dead => 16,
    };
    let unreadable = if filter.selects_any_unreadable() { 32 } else { 0 };
    filter.states.iter().map(bit).fold(unreadable, |states, state| states | state)
}

/// Returns the server's time, for a page without records.
async fn server_time(batcher: &CallBatcher) -> Result<Timestamp, StoreError> {
    let reply = batcher.connection().send(&Cmd::new().arg("TIME").to_owned()).await?;
    let time = parse_time(&reply).ok().and_then(|time| u64::try_from(time).ok());
    Ok(Timestamp(time.unwrap_or_default()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_rank_are_not_split_across_pages() {
        let key = |rank: u128, rest: u128| Key::from_parts("n", rank << 96 | rest);
        let keys = [key(1, 0), key(2, 0), key(2, 1), key(2, 2), key(3, 0)];
        let fits: Vec<usize> = (1..=6).map(|room| whole_ranks(&keys, room)).collect();
        assert_eq!(fits, [1, 1, 1, 4, 5, 5]);
        assert_eq!(whole_ranks(&keys[1..], 2), 2, "more of one rank than there is room for: better parted than none");
    }

    #[test]
    fn a_filter_asks_the_server_for_its_states_alone() {
        assert_eq!(states(&KeyFilter::all()), 63);
        assert_eq!(states(&KeyFilter::of_states(&[StateKind::Dead, StateKind::Dead, StateKind::Vacant])), 17);
        let mut orphaned = KeyFilter::default();
        orphaned.orphaned = true;
        assert_eq!(states(&orphaned), 26, "an unreadable record has no lease");
    }
}

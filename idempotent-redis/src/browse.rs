//! Listing and removing records, by `SCAN`: no server stands still for it.
use async_trait::async_trait;
use idempotent_core::protocol::live;
use idempotent_core::{Browse, Entry, Key, Page, Purge, StoreError, StoreErrorKind};
use redis::{Cmd, Value};

use crate::RedisStore;
use crate::answer;
use crate::call::Call;
use crate::failure::Failure;
use crate::lane::Lane;
use crate::store::BUDGET;

/// The most entries of a page.
const MOST: usize = 10_000;
/// Places that `SCAN` looks at before it answers.
const COUNT: usize = 1_000;
/// What every key of ours ends in; others may live beside them.
const PATTERN: &str = "*:{??????????????????????}";

/// Where a listing stands: a server, its cursor, and how many of that cursor's keys were given out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Place {
    server: usize,
    cursor: u64,
    given: usize,
}

impl Place {
    /// 32 bits of server, 64 of cursor, 32 of count.
    fn pack(self) -> u128 {
        (self.server as u128) << 96 | u128::from(self.cursor) << 32 | (self.given as u128 & 0xffff_ffff)
    }

    fn unpack(packed: u128) -> Self {
        let part = |shift: u32, bits: u32| (packed >> shift) & ((1_u128 << bits) - 1);
        Self { server: part(96, 32) as usize, cursor: part(32, 64) as u64, given: part(0, 32) as usize }
    }
}

/// The keys at a place, without those given already, as few as the server gives at once where there is little room.
async fn fitting(lane: &Lane, place: &Place, room: usize) -> Result<(u64, Vec<Key>), Failure> {
    let mut count = COUNT.min(room);
    loop {
        let (cursor, mut keys) = scan(lane, place.cursor, count).await?;
        // The same order as long as nothing is added or removed there.
        keys.sort_unstable_by_key(Key::hash);
        keys.drain(..place.given.min(keys.len()));
        if keys.len() <= room || count == 1 {
            return Ok((cursor, keys));
        }
        count = count.div_ceil(4).min(count - 1);
    }
}

async fn scan(lane: &Lane, cursor: u64, count: usize) -> Result<(u64, Vec<Key>), Failure> {
    let mut cmd = Cmd::new();
    cmd.arg("SCAN").arg(cursor).arg("MATCH").arg(PATTERN).arg("COUNT").arg(count);
    let odd = || Failure::ambiguous("SCAN was answered in a form that is not SCAN's");
    let Value::Array(said) = lane.link().one(&cmd).await? else { return Err(odd()) };
    let [Value::BulkString(cursor), Value::Array(keys)] = &said[..] else { return Err(odd()) };
    let cursor = std::str::from_utf8(cursor).ok().and_then(|cursor| cursor.parse().ok()).ok_or_else(odd)?;
    let key = |value: &Value| match value {
        Value::BulkString(bytes) => Key::from_text(std::str::from_utf8(bytes).ok()?),
        _ => None,
    };
    Ok((cursor, keys.iter().filter_map(key).collect()))
}

#[async_trait]
impl Browse for RedisStore {
    async fn browse(&self, after: Option<u128>, limit: usize) -> Result<Page, StoreError> {
        let limit = limit.clamp(1, MOST);
        let lanes = self.0.topology.lanes(after.is_none()).await?;
        let mut place = after.map_or_else(Place::default, Place::unpack);
        let mut entries = Vec::new();
        while let Some(lane) = lanes.get(place.server).filter(|_| entries.len() < limit) {
            let room = limit - entries.len();
            let (cursor, keys) = fitting(lane, &place, room).await?;
            let fits = keys.len() <= room;
            if !fits && !entries.is_empty() {
                // Not in part: another process may make the table grow before the next page.
                break;
            }
            let (own, others): (Vec<&Key>, Vec<&Key>) = keys.iter().take(room).partition(|key| self.is_own(key));
            entries.extend(self.entries(&own).await?);
            match self.entries(&others).await {
                // Those of other namespaces may be none of this user's business.
                Err(error) if error.kind() == StoreErrorKind::Denied => {}
                listed => entries.extend(listed?),
            }
            place = match (fits, cursor) {
                (false, _) => Place { given: place.given + room, ..place },
                (true, 0) => Place { server: place.server + 1, ..Place::default() },
                (true, cursor) => Place { cursor, given: 0, ..place },
            };
        }
        let next = (place.server < lanes.len()).then(|| place.pack());
        Ok(Page { entries, next })
    }
}

impl RedisStore {
    /// Whether it is of this store's namespace.
    fn is_own(&self, key: &Key) -> bool {
        // As keys show it.
        let namespace = Key::from_parts(&self.0.wanted.namespace, 0);
        key.name().strip_prefix(namespace.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    }

    async fn entries(&self, keys: &[&Key]) -> Result<Vec<Entry>, StoreError> {
        let calls: Vec<Call> = keys.iter().map(|key| Call::look(key)).collect();
        let said = self.0.topology.ask_all(&calls.iter().collect::<Vec<_>>(), BUDGET).await;
        let mut entries = Vec::new();
        for (key, said) in keys.iter().zip(said) {
            match said.and_then(answer::seen) {
                Ok(Some((record, now))) if live(Some(&record), now).is_some() => {
                    entries.push(Entry { key: (*key).clone(), record });
                }
                Ok(_) => {}
                // Left alone, and no reason to hide the others.
                Err(error) if unreadable(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }
}

fn unreadable(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::UnknownVersion | StoreErrorKind::Foreign)
}

#[async_trait]
impl Purge for RedisStore {
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
        let mut gone = 0;
        for lane in self.0.topology.lanes(true).await? {
            let mut cursor = 0;
            loop {
                let (next, keys) = scan(&lane, cursor, COUNT).await?;
                for key in &keys {
                    if gone >= at_most {
                        return Ok(gone);
                    }
                    gone += match self.0.topology.purge(key).await {
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

//! A backend over a map, with one bug at most.
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use async_trait::async_trait;
use idempotent_core::{
    CasBackend, Clock, Key, Purge, Record, State, StoreCapabilities, StoreError, Timestamp, Version, VersionedRecord,
    protocol,
};
use idempotent_testkit::VirtualClock;
use tokio::task::yield_now;

macro_rules! bugs {
    ($($(#[$doc:meta])+ $bug:ident,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(crate) enum Bug {
            $($(#[$doc])+ $bug,)+
        }

        impl Bug {
            pub(crate) const ALL: &[Self] = &[$(Self::$bug,)+];
        }
    };
}

bugs! {
    /// Each row has its own counter, which restarts after a deletion.
    VersionRestarts,
    /// The version of every record is 1.
    VersionIsExists,
    /// The version is a digest of the record, so an old version returns with an old record.
    VersionIsContent,
    /// The counter starts at zero.
    ZeroForARecord,
    /// All keys share one version.
    VersionOfTheWholeStore,
    /// A swap ignores the seen version.
    SwapIgnoresVersion,
    /// `UPDATE … WHERE version = seen OR seen = 0`.
    ZeroIsAnyVersion,
    /// A swap inserts an absent record, whatever the seen version.
    AbsentIsAnyVersion,
    /// `DELETE` without `WHERE version = seen`.
    DeletionIgnoresVersion,
    /// A swap writes although it returns false.
    RefusedSwapWrites,
    /// A swap changes the version although it returns false.
    RefusedSwapCounts,
    /// A deletion keeps the record.
    NoneIsKept,
    /// A swap reads and writes in two steps.
    SwapInTwoSteps,
    /// A read takes the record and the version in two steps.
    ReadInTwoSteps,
    /// A read hides expired records, but a swap compares with their versions.
    HidesExpired,
    /// Removes records an hour early.
    RemovesEarly,
    /// A TTL removes rows at the end of their records.
    RemovesAtTheEnd,
    /// A purge removes records as soon as they are purgeable, without the margin of [`protocol::removable`].
    PurgesWithoutMargin,
    /// Rows are addressed by the readable part of the key.
    KeyByName,
    /// An empty value is stored as none.
    EmptyIsNone,
    /// Times are stored in ms.
    TimesInMillis,
    /// The time of the backend is in ms.
    NowInMillis,
    /// The backend reads its clock once, when it is opened.
    ClockReadOnce,
    /// Two servers answer in turn, and their clocks differ.
    TwoClocks,
    /// A read changes the version.
    ReadingCounts,
    /// A swap writes, and returns false.
    DoneAndDenied,
    /// A swap returns true without a write, as after a lost commit.
    SaidAndNotDone,
    /// A key is written twice at most.
    RefusesTheThird,
    /// Times end in the year 9999.
    NoTimeWithoutEnd,
}

#[derive(Debug)]
pub(crate) struct Mutant {
    bug: Option<Bug>,
    clock: VirtualClock,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    rows: HashMap<String, (Version, Record)>,
    last: Version,
    reads: u64,
}

impl Mutant {
    pub(crate) fn new(bug: Option<Bug>, clock: VirtualClock) -> Self {
        Self { bug, clock, inside: Mutex::default() }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn remove(&self, inside: &mut Inside, is_gone: impl Fn(&Record, Timestamp) -> bool) -> usize {
        let (now, before) = (self.clock.wall(), inside.rows.len());
        inside.rows.retain(|_, row| !is_gone(&row.1, now));
        before - inside.rows.len()
    }

    fn lives(&self, inside: &mut Inside) {
        if self.has(Bug::RemovesAtTheEnd) {
            self.remove(inside, |record, now| record.expires_at <= now);
        }
    }

    fn place(&self, key: &Key) -> String {
        if self.has(Bug::KeyByName) { key.name().to_owned() } else { key.as_str().to_owned() }
    }

    fn version(&self, inside: &Inside, key: &Key) -> Version {
        match inside.rows.get(&self.place(key)) {
            Some(_) if self.has(Bug::VersionOfTheWholeStore) => inside.last,
            Some((version, _)) => *version,
            None => 0,
        }
    }

    fn record(&self, inside: &Inside, key: &Key) -> Option<Record> {
        let now = self.clock.wall().0;
        let record = inside.rows.get(&self.place(key)).map(|row| row.1.clone());
        record.filter(|record| match self.bug {
            Some(Bug::HidesExpired) => record.expires_at.0 > now,
            Some(Bug::RemovesEarly) => record.expires_at.0 > now + 3_600_000_000,
            _ => true,
        })
    }

    fn may(&self, seen: Version, found: Version, next: Option<&Record>) -> bool {
        if self.has(Bug::RefusesTheThird) && found == 2 {
            return false;
        }
        seen == found
            || match self.bug {
                Some(Bug::SwapIgnoresVersion) => true,
                Some(Bug::ZeroIsAnyVersion) => seen == 0,
                Some(Bug::AbsentIsAnyVersion) => found == 0,
                Some(Bug::DeletionIgnoresVersion) => next.is_none(),
                _ => false,
            }
    }

    fn next_version(&self, inside: &mut Inside, found: Version, next: &Record) -> Version {
        inside.last += 1;
        match self.bug {
            Some(Bug::VersionRestarts) => found + 1,
            Some(Bug::VersionIsExists) => 1,
            Some(Bug::VersionIsContent) => {
                let mut digest = DefaultHasher::new();
                next.to_bytes().hash(&mut digest);
                digest.finish()
            }
            Some(Bug::ZeroForARecord) => inside.last - 1,
            _ => inside.last,
        }
    }

    fn kept(&self, mut record: Record) -> Record {
        match (self.bug, &mut record.state) {
            (Some(Bug::EmptyIsNone), State::Consumed { value, .. }) => {
                *value = value.take().filter(|value| !value.is_empty())
            }
            (Some(Bug::NoTimeWithoutEnd), _) => {
                record.expires_at = record.expires_at.min(Timestamp(253_402_300_799_000_000));
            }
            (Some(Bug::TimesInMillis), _) => record.first_seen.0 -= record.first_seen.0 % 1_000,
            _ => {}
        }
        record
    }

    fn write(&self, inside: &mut Inside, key: &Key, next: Option<&Record>) {
        let found = self.version(inside, key);
        match next {
            _ if self.has(Bug::SaidAndNotDone) => {}
            Some(next) => {
                let version = self.next_version(inside, found, next);
                inside.rows.insert(self.place(key), (version, self.kept(next.clone())));
            }
            None if self.has(Bug::NoneIsKept) => {}
            None => drop(inside.rows.remove(&self.place(key))),
        }
    }

    fn now(&self, reads: u64) -> Timestamp {
        match self.clock.wall() {
            _ if self.has(Bug::ClockReadOnce) => VirtualClock::START,
            now if self.has(Bug::NowInMillis) => Timestamp(now.0 / 1_000),
            now if self.has(Bug::TwoClocks) => Timestamp(now.0 + reads % 2 * 50_000),
            now => now,
        }
    }
}

#[async_trait]
impl CasBackend for Mutant {
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
        let (record, mut version, reads) = {
            let inside = &mut *self.inside.lock().unwrap();
            inside.reads += 1;
            self.lives(inside);
            if self.has(Bug::ReadingCounts) {
                inside.last += 1;
                let last = inside.last;
                inside.rows.entry(self.place(key)).and_modify(|row| row.0 = last);
            }
            (self.record(inside, key), self.version(inside, key), inside.reads)
        };
        yield_now().await; // as a network would
        if self.has(Bug::ReadInTwoSteps) {
            version = self.version(&self.inside.lock().unwrap(), key);
        }
        if record.is_none() {
            version = 0;
        }
        Ok(VersionedRecord { record, version, now: self.now(reads) })
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        let may = |inside: &Inside| self.may(seen, self.version(inside, key), next);
        if self.has(Bug::SwapInTwoSteps) {
            let may = may(&self.inside.lock().unwrap());
            yield_now().await;
            if may {
                self.write(&mut self.inside.lock().unwrap(), key, next);
            }
            return Ok(may);
        }
        let inside = &mut *self.inside.lock().unwrap();
        self.lives(inside);
        let may = may(inside);
        if may || self.has(Bug::RefusedSwapWrites) {
            self.write(inside, key, next);
        } else if self.has(Bug::RefusedSwapCounts)
            && let Some(row) = inside.rows.get_mut(&self.place(key))
        {
            inside.last += 1;
            row.0 = inside.last;
        }
        Ok(may && !self.has(Bug::DoneAndDenied))
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none().with_purge(self)
    }
}

#[async_trait]
impl Purge for Mutant {
    async fn purge(&self, _: usize) -> Result<usize, StoreError> {
        let rule = if self.has(Bug::PurgesWithoutMargin) { protocol::purgeable } else { protocol::removable };
        Ok(self.remove(&mut self.inside.lock().unwrap(), rule))
    }
}

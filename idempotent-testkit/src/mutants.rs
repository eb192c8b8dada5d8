//! Stores that are wrong in one way each, to show that a test notices.
//!
//! A kit is as good as what it catches. [`Mutant`] is [`protocol`](idempotent_core::protocol) over a map, right
//! without a bug and wrong with one [`Bug`] of [`Bug::ALL`]. Our own tests hold every mutant against every law of
//! [`conformance!`](crate::conformance!): each mutant breaks the laws it should, each law is broken by a mutant, and
//! the store without a bug keeps them all.
//!
//! Take them to test checks of your own: a simulator, a checker of histories, a law you wrote.
//!
//! ```
//! use std::sync::Arc;
//! use idempotent_testkit::conformance::{Threads, hold, laws};
//! use idempotent_testkit::mutants::{Bug, Mutant};
//! use idempotent_testkit::{Subject, VirtualClock};
//!
//! let with = |bug| {
//!     let clock = VirtualClock::new();
//!     Subject::new(Mutant::new(bug, Arc::new(clock.clone()))).on_clock(clock)
//! };
//! let law = laws::owners::a_renewal_never_shortens;
//! hold(Threads::One, || with(None), law);
//! let broken = std::panic::catch_unwind(|| hold(Threads::One, || with(Some(Bug::RenewalShortens)), law));
//! assert!(broken.is_err());
//! ```
mod ability;
mod bug;
mod decide;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Abilities, Claim, ClaimRequest, Clock, Completion, Held, Key, Record, Release, Settled, State, Store, StoreError,
};
use tokio::sync::Notify;

pub use self::bug::Bug;

/// A store over a map with one bug, or none. Clones share the records.
///
/// Its time is the wall time of the clock it is given, which must not go back.
///
/// Abilities: all.
#[derive(Clone, Debug)]
pub struct Mutant {
    bug: Option<Bug>,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    rows: Mutex<Rows>,
    bell: Arc<Notify>,
}

type Rows = BTreeMap<String, (Key, Record)>;

impl Mutant {
    /// Empty, and wrong in this way; with `None` it is right.
    #[must_use]
    pub fn new(bug: Option<Bug>, clock: Arc<dyn Clock>) -> Self {
        Self { bug, clock, shared: Arc::default() }
    }

    /// What is wrong with it.
    #[must_use]
    pub fn bug(&self) -> Option<Bug> {
        self.bug
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        // A panic cannot leave a half-written record: a write is one call.
        self.shared.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, key: &Key) -> String {
        match self.bug {
            Some(Bug::CaseFolded) => key.as_str().to_lowercase(),
            Some(Bug::KeyJoined) => format!("{}{:x}", key.name().replace(':', ""), key.hash()),
            _ => key.as_str().to_owned(),
        }
    }

    fn found(&self, rows: &Rows, key: &Key) -> Option<Record> {
        rows.get(&self.place(key)).map(|(_, record)| record.clone())
    }

    fn write(&self, rows: &mut Rows, key: &Key, write: Write) {
        match write {
            Write::Keep => {}
            Write::Put(record) => {
                let record = decide::kept(self.bug, record);
                rows.insert(self.place(key), (key.clone(), record));
            }
            Write::Delete => drop(rows.remove(&self.place(key))),
        }
    }

    /// Reads, decides and writes in one step.
    fn step<T>(&self, key: &Key, decide: impl FnOnce(Option<&Record>) -> (T, Write)) -> T {
        let mut rows = self.rows();
        let (answer, write) = decide(self.found(&rows, key).as_ref());
        self.write(&mut rows, key, write);
        answer
    }

    /// Whether this claim is to be torn in two: a read, and a write that trusts it.
    fn tears(&self, key: &Key) -> bool {
        match self.bug {
            Some(Bug::NonAtomicClaim) => true,
            Some(Bug::TakeoverWithoutCompare) => {
                let now = self.clock.wall();
                let found = self.found(&self.rows(), key);
                let state = protocol::live(found.as_ref(), now).map(|record| &record.state);
                matches!(state, Some(State::Consuming { until, .. }) if *until <= now)
            }
            _ => false,
        }
    }
}

#[async_trait]
impl Store for Mutant {
    async fn claim(&self, ask: &ClaimRequest) -> Result<Claim, StoreError> {
        let decide = |found: Option<&Record>| decide::claim(self.bug, found, ask, self.clock.wall());
        if self.tears(&ask.key) {
            let found = self.found(&self.rows(), &ask.key);
            tokio::task::yield_now().await;
            let (claim, write) = decide(found.as_ref());
            self.write(&mut self.rows(), &ask.key, write);
            return Ok(claim);
        }
        Ok(self.step(&ask.key, decide))
    }

    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        Ok(self.step(&held.key, |found| decide::renew(self.bug, found, held, lease, self.clock.wall())))
    }

    async fn complete(&self, held: &Held, done: &Completion) -> Result<Settled, StoreError> {
        let settled = self.step(&held.key, |found| decide::complete(self.bug, found, held, done, self.clock.wall()));
        self.shared.bell.notify_waiters();
        Ok(settled)
    }

    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        let settled = self.step(&held.key, |found| decide::release(self.bug, found, held, release, self.clock.wall()));
        if !self.has(Bug::ReleaseWakesNobody) {
            self.shared.bell.notify_waiters();
        }
        Ok(settled)
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let (found, now) = (self.found(&self.rows(), key), self.clock.wall());
        Ok(found.filter(|record| self.has(Bug::PeekShowsExpired) || protocol::live(Some(record), now).is_some()))
    }

    fn abilities(&self) -> Abilities<'_> {
        Abilities::none().with_batch(self).with_watch(self).with_browse(self).with_purge(self).with_admin(self)
    }
}

//! The keys that an executor knows to be in flight, so that their duplicates need no claim.
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::later;
use crate::sync::{Mutex, MutexGuard};
use crate::waiters::Waiters;
use crate::{ClaimRequest, Fingerprint, InFlight, Key, Lease, Watching};

/// The time between two removals of old answers, at least.
const CLEANING: Duration = Duration::from_secs(1);

/// The keys in flight that this executor runs, claims at this moment, or has claimed a short time ago.
///
/// A known key is only a reason to defer a duplicate. A grant always comes from the store.
pub(crate) struct InFlightKeys {
    /// The shortest time between two claims of a key that another process runs.
    interval: Duration,
    table: Mutex<KeyTable>,
    /// The calls that wait for the answer to the claim of another call.
    awaiting: Arc<Waiters>,
}

#[derive(Default)]
struct KeyTable {
    keys: HashMap<u128, KnownKey>,
    /// The number of the last claim.
    claims: u64,
    /// The time from which the next answer removes the old ones.
    clean_at: Option<Instant>,
}

/// The knowledge of a key.
enum KnownKey {
    /// A claim with this number was sent and is not answered yet.
    Claimed(u64),
    /// A run of this executor holds the key.
    Held { lease: Lease, fingerprint: Option<Fingerprint> },
    /// The store answered that the key is in flight, with the end of its lease if that is known.
    Answered { ask_again: Instant, lease_end: Option<Instant>, fingerprint: Option<Fingerprint> },
}

/// A key that is in flight as far as this executor knows.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct KnownInFlight {
    pub(crate) in_flight: InFlight,
    /// The time from which the store has to be asked.
    pub(crate) ask_again: Instant,
}

/// The next step of a call with a key.
pub(crate) enum KeyLookup {
    /// The key is in flight.
    InFlight(KnownInFlight),
    /// Another call waits for the answer of the store. The future ends with that answer.
    Claimed(Watching),
    /// The store has to be asked. The answer is noted, unless a run of this executor holds the key.
    Ask(Option<PendingClaim>),
}

impl InFlightKeys {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, table: Mutex::default(), awaiting: Arc::default() }
    }

    /// Returns the longest time for which a call waits for the answer to another claim.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the answer to the claim, if the key is known to be in flight.
    pub(crate) fn in_flight(&self, request: &ClaimRequest, now: Instant) -> Option<KnownInFlight> {
        self.table().keys.get(&request.key.hash()).and_then(|known| known.in_flight(request, now))
    }

    /// Returns the next step of a call, and marks its key as claimed if the call has to ask the store.
    pub(crate) fn look_up(self: &Arc<Self>, request: &ClaimRequest, now: Instant) -> KeyLookup {
        let hash = request.key.hash();
        let mut table = self.table();
        match table.keys.get(&hash) {
            Some(KnownKey::Claimed(_)) => return KeyLookup::Claimed(self.awaiting.watch(hash)),
            Some(known) => {
                if let Some(answer) = known.in_flight(request, now) {
                    return KeyLookup::InFlight(answer);
                }
                // Only the store may compare payloads.
                if matches!(known, KnownKey::Held { lease, .. } if !lease.is_lost_at(now)) {
                    return KeyLookup::Ask(None);
                }
            }
            None => {}
        }
        table.claims += 1;
        let number = table.claims;
        table.keys.insert(hash, KnownKey::Claimed(number));
        KeyLookup::Ask(Some(PendingClaim { known: self.clone(), hash, number }))
    }

    /// Records a run of this executor, until the returned value is dropped.
    pub(crate) fn hold(self: &Arc<Self>, lease: &Lease, fingerprint: Option<Fingerprint>) -> HeldKey {
        self.table().keys.insert(lease.key().hash(), KnownKey::Held { lease: lease.clone(), fingerprint });
        HeldKey { known: self.clone(), lease: lease.clone() }
    }

    /// Replaces a pending claim by its answer.
    fn note(&self, number: u64, request: &ClaimRequest, in_flight: InFlight, now: Instant) {
        let (pause, lease_end) = match in_flight {
            InFlight::Leased { rest } => (self.interval.min(rest), Some(later(now, rest))),
            InFlight::Busy => (self.interval, None),
        };
        let mut table = self.table();
        if table.clean_at.is_none_or(|at| at <= now) {
            table.clean_at = Some(later(now, CLEANING.max(self.interval)));
            table.keys.retain(|_, known| !matches!(known, KnownKey::Answered { ask_again, .. } if *ask_again <= now));
        }
        if let Some(known) = table.keys.get_mut(&request.key.hash()).filter(|known| known.is_claim(number)) {
            *known = KnownKey::Answered { ask_again: later(now, pause), lease_end, fingerprint: request.fingerprint };
        }
    }

    /// Removes the answer of the store after a settlement of the key. The answer to a pending claim may be older than the
    /// settlement, so it is not noted.
    pub(crate) fn forget_answer(&self, key: &Key) {
        self.remove_if(key.hash(), |known| matches!(known, KnownKey::Answered { .. } | KnownKey::Claimed(_)));
    }

    fn remove_if(&self, hash: u128, is_old: impl FnOnce(&KnownKey) -> bool) {
        let mut table = self.table();
        if table.keys.get(&hash).is_some_and(is_old) {
            table.keys.remove(&hash);
        }
    }

    fn table(&self) -> MutexGuard<'_, KeyTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownKey {
    /// Returns true for the mark of this claim. After a settlement, another claim may have the mark.
    fn is_claim(&self, number: u64) -> bool {
        matches!(self, Self::Claimed(own) if *own == number)
    }

    /// Returns the answer that the store would give, or `None` if only the store can answer.
    fn in_flight(&self, request: &ClaimRequest, now: Instant) -> Option<KnownInFlight> {
        let is_same = |known: &Option<Fingerprint>| request.fingerprint.is_none() || request.fingerprint == *known;
        match self {
            Self::Held { lease, fingerprint } if is_same(fingerprint) && !lease.is_lost_at(now) => {
                let guard = lease.guard();
                Some(KnownInFlight { in_flight: leased_until(guard, now), ask_again: guard })
            }
            Self::Answered { ask_again, lease_end, fingerprint } if is_same(fingerprint) && now < *ask_again => {
                let in_flight = lease_end.map_or(InFlight::Busy, |end| leased_until(end, now));
                Some(KnownInFlight { in_flight, ask_again: *ask_again })
            }
            _ => None,
        }
    }
}

fn leased_until(end: Instant, now: Instant) -> InFlight {
    InFlight::Leased { rest: end.saturating_duration_since(now) }
}

/// A claim that is not answered yet. Equal calls wait until this value is dropped.
pub(crate) struct PendingClaim {
    known: Arc<InFlightKeys>,
    hash: u128,
    number: u64,
}

impl PendingClaim {
    /// Notes that the store answered the claim with "in flight".
    pub(crate) fn answered(self, request: &ClaimRequest, in_flight: InFlight, now: Instant) {
        self.known.note(self.number, request, in_flight, now);
    }
}

impl Drop for PendingClaim {
    fn drop(&mut self) {
        self.known.remove_if(self.hash, |known| known.is_claim(self.number));
        self.known.awaiting.wake(self.hash);
    }
}

/// A key that a run of this executor holds, until the run is settled or dropped.
pub(crate) struct HeldKey {
    known: Arc<InFlightKeys>,
    lease: Lease,
}

impl Drop for HeldKey {
    fn drop(&mut self) {
        // A later run of this executor may have taken the key over.
        let is_own = |known: &KnownKey| matches!(known, KnownKey::Held { lease, .. } if lease.is_same(&self.lease));
        self.known.remove_if(self.lease.key().hash(), is_own);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use shuttle::future::block_on;
    use shuttle::{check_dfs, check_random, thread};

    use super::*;
    use crate::{Clock, Identity, Scene, SystemClock};

    const INTERVAL: Duration = Duration::from_millis(100);
    const LEASED: InFlight = InFlight::Leased { rest: Duration::from_secs(30) };

    fn request(name: &str) -> ClaimRequest {
        ClaimRequest::new(Identity::new(Scene::Mq, "test", name).key("test").unwrap()).unwrap()
    }

    fn ask(keys: &Arc<InFlightKeys>, name: &str, now: Instant) -> PendingClaim {
        match keys.look_up(&request(name), now) {
            KeyLookup::Ask(Some(pending)) => pending,
            KeyLookup::Ask(None) | KeyLookup::Claimed(_) | KeyLookup::InFlight(_) => panic!("`{name}` is known"),
        }
    }

    #[test]
    fn an_answer_counts_for_the_interval_and_at_most_for_the_lease() {
        let test = || {
            let (keys, now) = (Arc::new(InFlightKeys::new(INTERVAL)), SystemClock::new().now());
            ask(&keys, "a", now).answered(&request("a"), LEASED, now);
            let known = keys.in_flight(&request("a"), now + INTERVAL / 2).unwrap();
            let rest = Duration::from_secs(30) - INTERVAL / 2;
            assert_eq!(known, KnownInFlight { in_flight: InFlight::Leased { rest }, ask_again: now + INTERVAL });
            assert_eq!(keys.in_flight(&request("a"), now + INTERVAL), None);
            let short = InFlight::Leased { rest: INTERVAL / 4 };
            ask(&keys, "b", now).answered(&request("b"), short, now);
            assert_eq!(keys.in_flight(&request("b"), now + INTERVAL / 4), None);
            ask(&keys, "c", now).answered(&request("c"), InFlight::Busy, now);
            assert_eq!(keys.in_flight(&request("c"), now).unwrap().in_flight, InFlight::Busy);
            keys.forget_answer(&request("c").key);
            assert_eq!(keys.in_flight(&request("c"), now), None);
        };
        check_random(test, 1);
    }

    #[test]
    fn a_claim_without_a_noted_answer_leaves_no_entry() {
        let test = || {
            let (keys, now) = (Arc::new(InFlightKeys::new(INTERVAL)), SystemClock::new().now());
            let pending = ask(&keys, "a", now);
            assert!(matches!(keys.look_up(&request("a"), now), KeyLookup::Claimed(_)));
            drop(pending);
            assert!(keys.table().keys.is_empty());
            drop(ask(&keys, "a", now));
        };
        check_random(test, 1);
    }

    #[test]
    fn an_answer_that_may_be_older_than_a_settlement_is_not_noted() {
        let test = || {
            let (keys, now) = (Arc::new(InFlightKeys::new(INTERVAL)), SystemClock::new().now());
            let pending = ask(&keys, "a", now);
            keys.forget_answer(&request("a").key);
            let other = ask(&keys, "a", now);
            pending.answered(&request("a"), LEASED, now);
            assert_eq!(keys.in_flight(&request("a"), now), None);
            assert!(
                matches!(keys.look_up(&request("a"), now), KeyLookup::Claimed(_)),
                "the other claim has its own mark"
            );
            drop(other);
            assert!(keys.table().keys.is_empty());
        };
        check_random(test, 1);
    }

    #[test]
    fn old_answers_are_removed_by_a_later_answer() {
        let test = || {
            let (keys, now) = (Arc::new(InFlightKeys::new(INTERVAL)), SystemClock::new().now());
            for name in ["a", "b", "c"] {
                ask(&keys, name, now).answered(&request(name), LEASED, now);
            }
            let later = now + CLEANING;
            let claimed = ask(&keys, "d", later);
            ask(&keys, "e", later).answered(&request("e"), LEASED, later);
            assert_eq!(keys.table().keys.len(), 2, "the claimed key and the new answer");
            drop(claimed);
        };
        check_random(test, 1);
    }

    #[test]
    fn a_call_that_waits_for_a_claim_is_woken_in_every_order() {
        let test = || {
            let (keys, now) = (Arc::new(InFlightKeys::new(INTERVAL)), SystemClock::new().now());
            let call = move |keys: &Arc<InFlightKeys>| match keys.look_up(&request("a"), now) {
                KeyLookup::Ask(Some(pending)) => pending.answered(&request("a"), LEASED, now),
                KeyLookup::Claimed(answered) => block_on(answered),
                KeyLookup::Ask(None) | KeyLookup::InFlight(_) => {}
            };
            let other = keys.clone();
            let thread = thread::spawn(move || call(&other));
            call(&keys);
            thread.join().unwrap();
            assert_eq!(keys.awaiting.waiting(), 0);
        };
        check_dfs(test, None);
    }
}

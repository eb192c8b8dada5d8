//! A store that knows the owner of a consumed record by its grant's number keeps every law, and no store may know less.
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Clock, Completion, Key, MemoryStore, OwnerToken, Record, Release, Settled, State,
    Store, StoreCapabilities, StoreError, Timestamp,
};
use idempotent_testkit::conformance::{Threads, hold, laws};
use idempotent_testkit::{Subject, VirtualClock, conformance};

/// A store that drops the owner token at completion: if the worker received the fencing token, or always.
#[derive(Debug)]
struct Drops {
    always: bool,
    clock: VirtualClock,
    records: Mutex<HashMap<u128, Record>>,
}

impl Drops {
    fn subject(always: bool) -> Subject {
        let clock = VirtualClock::new();
        Subject::new(Self { always, clock: clock.clone(), records: Mutex::default() }).on_clock(clock)
    }

    fn step<T>(
        &self,
        key: &Key,
        decide: impl FnOnce(Option<&Record>, Timestamp) -> (T, Write),
    ) -> Result<T, StoreError> {
        let mut records = self.records.lock().unwrap();
        let (answer, write) = decide(records.get(&key.hash()), self.clock.wall());
        match write {
            Write::Keep => {}
            Write::Put(record) => drop(records.insert(key.hash(), record)),
            Write::Delete => drop(records.remove(&key.hash())),
        }
        Ok(answer)
    }
}

#[async_trait]
impl Store for Drops {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.step(&request.key, |found, now| protocol::claim(found, request, now))
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.step(&held.key, |found, now| protocol::renew(found, held, lease, now))
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.step(&held.key, |found, now| {
            let (settled, mut write) = protocol::complete(found, held, completion, now);
            if let Write::Put(Record { state: State::Consumed { owner, .. }, .. }) = &mut write
                && (self.always || held.fencing.is_some())
            {
                *owner = OwnerToken::NOT_KEPT;
            }
            (settled, write)
        })
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.step(&held.key, |found, now| protocol::release(found, held, release, now))
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.step(key, |found, now| (protocol::live(found, now).cloned(), Write::Keep))
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

conformance!(
    an_owner_told_its_number_need_not_be_kept,
    Drops::subject(false).rounds(50),
    without: [second, clients, losing, planting, foreign, batch, watch, search, purge, admin, journal, order]
);

mod extras {
    use super::*;

    conformance!(
        an_owner_told_its_number_need_not_be_kept,
        Drops::subject(false),
        without: [second, clients, losing, planting, foreign, batch, watch, search, purge, admin, journal, order]
    );
}

#[test]
fn an_owner_without_a_fencing_token_has_to_be_kept() {
    let law = async |s: &Subject| laws::equality::answered_as_by_the_protocol(s, 0, 1_000).await;
    let held = AssertUnwindSafe(|| hold(Threads::One, || Drops::subject(true), law));
    let said = *catch_unwind(held).expect_err("not caught").downcast::<String>().unwrap();
    // Claimed, and completed twice by an unknown owner.
    assert!(said.contains("the completion's answer differs") && said.contains("3 of its "), "{said}");
    assert!(!said.contains("each owner sends the fencing token"), "{said}");
}

/// A number that is not looked at would let an overtaken run settle another's grant.
#[test]
fn scripts_whose_owners_have_fencing_tokens_are_played_too() {
    let counts = Arc::<Mutex<[u32; 2]>>::default();
    let seen = counts.clone();
    let law = async |s: &Subject| laws::equality::answered_as_by_the_protocol(s, 0, 1_000).await;
    let build = || {
        let clock = VirtualClock::new();
        let inner = Drops { always: false, clock: clock.clone(), records: Mutex::default() };
        Subject::new(Listens(inner, seen.clone())).on_clock(clock)
    };
    hold(Threads::One, build, law);
    let [told, untold] = *counts.lock().unwrap();
    assert!(told > 500 && untold > 500, "completions with a granted number {told}, without {untold}");
}

/// A stall ends leases that a law relies on. A law that fails without a stall is reported immediately.
#[test]
fn a_law_in_real_time_that_a_busy_machine_has_broken_is_held_again_with_longer_leases() {
    let tries = |threads, stall: Duration, holds_from: usize, builds: fn() -> Subject| {
        let tries = AtomicUsize::new(0);
        let law = async |_: &Subject| {
            // The machine stalls, and not the law.
            std::thread::sleep(stall);
            assert!(tries.fetch_add(1, Ordering::SeqCst) >= holds_from, "broken");
        };
        let broken = catch_unwind(AssertUnwindSafe(|| hold(threads, builds, law))).is_err();
        (tries.into_inner(), broken)
    };
    let real = || Subject::new(MemoryStore::new());
    let half = Duration::from_millis(500);
    assert_eq!(tries(Threads::One, half, 1, real), (2, false));
    let (held, broken) = tries(Threads::One, half, usize::MAX, real);
    assert!(broken && (2..=3).contains(&held), "held {held} times, as often as the machine stalls");
    assert_eq!(tries(Threads::Many, half, 1, real), (1, true), "a race is not held again");
    let exact = || Subject::new(MemoryStore::new()).on_clock(VirtualClock::new());
    assert_eq!(tries(Threads::One, half, 1, exact), (1, true), "its clock stands still, too");
}

/// Counts completions by whether they tell a number that was granted.
#[derive(Debug)]
struct Listens(Drops, Arc<Mutex<[u32; 2]>>);

#[async_trait]
impl Store for Listens {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.0.claim(request).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.0.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        match held.fencing {
            Some(fencing) if fencing.0 > 1 => self.1.lock().unwrap()[0] += 1,
            Some(_) => {}
            None => self.1.lock().unwrap()[1] += 1,
        }
        self.0.complete(held, completion).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.0.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

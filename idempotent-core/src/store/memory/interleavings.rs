//! Tests over all orders in which threads can claim, settle and remove one key or two.
#![allow(clippy::unwrap_used)]
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shuttle::future::block_on;
use shuttle::sync::Mutex;
use shuttle::{check_dfs, check_random, thread};

use super::MemoryStore;
use crate::clock::Timer;
use crate::{
    Claim, ClaimRequest, Clock, Completion, FencingToken, Grant, Identity, Key, OnExpiry, OwnerToken, Release,
    ReleaseKind, Scene, Settled, Store, Timestamp,
};

const LEASE: Duration = Duration::from_secs(30);
const RANDOM_SCHEDULES: usize = 1_000;

/// A clock that only tests advance.
#[derive(Debug)]
struct TestClock(Instant, AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Instant {
        self.0
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.1.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, _: Instant) -> Timer {
        Box::pin(std::future::pending())
    }
}

struct World {
    store: MemoryStore,
    clock: Arc<TestClock>,
    grants: Mutex<Vec<Grant>>,
}

fn key(part: &str) -> Key {
    Identity::new(Scene::Mq, "turns", part).key("test").unwrap()
}

fn request(part: &str, owner: u128) -> ClaimRequest {
    ClaimRequest {
        key: key(part),
        owner: OwnerToken(owner),
        lease: LEASE,
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: LEASE,
        display: None,
    }
}

impl World {
    fn new(max_entries: usize) -> Arc<Self> {
        let clock = Arc::new(TestClock(crate::SystemClock::new().now(), AtomicU64::new(1_000_000_000)));
        let store = MemoryStore::builder().clock(clock.clone()).max_entries(max_entries).build();
        Arc::new(Self { store, clock, grants: Mutex::default() })
    }

    fn claim(&self, part: &str, owner: u128) -> Option<Grant> {
        match block_on(self.store.claim(&request(part, owner))) {
            Ok(Claim::Acquired(grant)) => {
                self.grants.lock().unwrap().push(grant.clone());
                Some(grant)
            }
            _ => None,
        }
    }

    fn try_claim(&self, part: &str, owner: u128) {
        self.claim(part, owner);
    }

    fn complete(&self, part: &str, owner: u128, fencing: FencingToken) -> bool {
        let held = crate::ClaimHandle { key: key(part), owner: OwnerToken(owner), fencing: Some(fencing), terms: None };
        let done = Completion { value: None, retain: LEASE };
        block_on(self.store.complete(&held, &done)).unwrap() == Settled::Done
    }

    fn delete(&self, part: &str, owner: u128, fencing: FencingToken) {
        let held = crate::ClaimHandle { key: key(part), owner: OwnerToken(owner), fencing: Some(fencing), terms: None };
        let release =
            Release { kind: ReleaseKind::Delete, delay: Duration::ZERO, retention: LEASE, error: Arc::from("why") };
        assert_eq!(block_on(self.store.release(&held, &release)).unwrap(), Settled::Done);
    }

    fn advance(&self, time: Duration) {
        self.clock.1.fetch_add(u64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    fn granted(&self) -> usize {
        self.grants.lock().unwrap().len()
    }

    /// Returns whether the counter equals the number of records.
    fn count_matches(&self) -> bool {
        let there = self.store.0.shards.iter().map(|shard| shard.lock().unwrap().len()).sum::<usize>();
        there == self.store.len()
    }
}

fn run_concurrently<const N: usize>(world: &Arc<World>, parts: [fn(&World); N]) {
    let threads = parts.map(|part| {
        let world = world.clone();
        thread::spawn(move || part(&world))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn one_of_two_claims_is_granted_in_every_order() {
    let world = || {
        let world = World::new(10);
        run_concurrently(&world, [|world| world.try_claim("k", 1), |world| world.try_claim("k", 2)]);
        assert!(world.granted() == 1 && world.count_matches());
    };
    check_dfs(world, None);
}

#[test]
fn either_a_late_completion_or_a_takeover_wins() {
    let world = || {
        let world = World::new(10);
        let first = world.claim("k", 1).unwrap();
        world.advance(LEASE);
        let done = Arc::new(Mutex::new(false));
        let late = thread::spawn({
            let (world, done) = (world.clone(), done.clone());
            move || *done.lock().unwrap() = world.complete("k", 1, first.fencing)
        });
        let takeover = world.claim("k", 2);
        late.join().unwrap();
        assert_ne!(*done.lock().unwrap(), takeover.is_some());
    };
    check_dfs(world, None);
}

#[test]
fn fencing_numbers_increase_while_records_are_deleted_and_purged() {
    let world = || {
        let world = World::new(10);
        let in_turn: fn(&World) = |world| {
            for owner in [1, 2] {
                // Each thread's tokens are its own.
                let owner = owner << 8 | u128::from(thread_number());
                if let Some(grant) = world.claim("k", owner) {
                    world.delete("k", owner, grant.fencing);
                }
            }
        };
        run_concurrently(
            &world,
            [in_turn, in_turn, |world| {
                world.advance(Duration::from_secs(2));
                world.store.sweep(10);
            }],
        );
        let mut numbers: Vec<_> = world.grants.lock().unwrap().iter().map(|grant| grant.fencing).collect();
        let granted = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() == granted && world.count_matches(), "{numbers:?}");
    };
    check_random(world, RANDOM_SCHEDULES);
}

fn thread_number() -> u64 {
    let name = format!("{:?}", thread::current().id());
    name.bytes().filter(u8::is_ascii_digit).fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

#[test]
fn the_bound_holds_for_claims_run_concurrently() {
    let world = || {
        let world = World::new(2);
        let parts: [fn(&World); 3] =
            [|world| world.try_claim("a", 1), |world| world.try_claim("b", 2), |world| world.try_claim("c", 3)];
        run_concurrently(&world, parts);
        assert!(world.granted() == 2 && world.store.len() == 2 && world.count_matches());
    };
    check_random(world, RANDOM_SCHEDULES);
}

/// Shows that these tests can fail: a store that reads and writes under separate locks grants twice.
#[test]
#[should_panic(expected = "granted twice")]
fn a_read_outside_the_lock_is_detected() {
    let world = || {
        let world = World::new(10);
        let reads_first: fn(&World) = |world| {
            if block_on(world.store.peek(&key("k"))).unwrap().is_none() {
                let granted = Grant { fencing: FencingToken(1), attempt: 1, lease: LEASE, taken_over: None };
                world.grants.lock().unwrap().push(granted);
                drop(block_on(world.store.claim(&request("k", 1))));
            }
        };
        run_concurrently(&world, [reads_first, reads_first]);
        assert_eq!(world.granted(), 1, "granted twice");
    };
    check_dfs(world, None);
}

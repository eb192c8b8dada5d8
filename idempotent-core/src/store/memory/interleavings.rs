//! How threads that claim, settle and remove may take turns on one key or two.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shuttle::future::block_on;
use shuttle::sync::Mutex;
use shuttle::{check_dfs, check_random, thread};

use super::MemoryStore;
use crate::clock::Timer;
use crate::{
    Claim, ClaimRequest, Clock, Completion, Fencing, Grant, Identity, Key, Micros, OnExpiry, OwnerToken, Release,
    Scene, Settled, Store, Verdict,
};

const LEASE: Duration = Duration::from_secs(30);
const RANDOM: usize = 1_000;

/// Moved by hand.
#[derive(Debug)]
struct Hand(Instant, AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Instant {
        self.0
    }

    fn wall(&self) -> Micros {
        Micros(self.1.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, _: Instant) -> Timer {
        Box::pin(std::future::pending())
    }
}

struct World {
    store: MemoryStore,
    clock: Arc<Hand>,
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
        memory: LEASE,
        display: None,
    }
}

impl World {
    fn new(max_entries: usize) -> Arc<Self> {
        let clock = Arc::new(Hand(crate::SystemClock::new().now(), AtomicU64::new(1_000_000_000)));
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

    fn complete(&self, part: &str, owner: u128, fencing: Fencing) -> bool {
        let held = crate::Held { key: key(part), owner: OwnerToken(owner), fencing: Some(fencing) };
        let done = Completion { value: None, retain: LEASE };
        block_on(self.store.complete(&held, &done)).unwrap() == Settled::Done
    }

    fn delete(&self, part: &str, owner: u128, fencing: Fencing) {
        let held = crate::Held { key: key(part), owner: OwnerToken(owner), fencing: Some(fencing) };
        let release =
            Release { verdict: Verdict::Delete, delay: Duration::ZERO, memory: LEASE, error: Arc::from("why") };
        assert_eq!(block_on(self.store.release(&held, &release)).unwrap(), Settled::Done);
    }

    fn pass(&self, time: Duration) {
        self.clock.1.fetch_add(u64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    fn granted(&self) -> usize {
        self.grants.lock().unwrap().len()
    }

    /// The counter says what is there.
    fn adds_up(&self) -> bool {
        let there = self.store.0.shards.iter().map(|shard| shard.lock().unwrap().len()).sum::<usize>();
        there == self.store.len()
    }
}

fn side_by_side<const N: usize>(world: &Arc<World>, parts: [fn(&World); N]) {
    let threads = parts.map(|part| {
        let world = world.clone();
        thread::spawn(move || part(&world))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn of_two_claims_one_is_granted_in_every_order() {
    let world = || {
        let world = World::new(10);
        side_by_side(&world, [|world| drop(world.claim("k", 1)), |world| drop(world.claim("k", 2))]);
        assert!(world.granted() == 1 && world.adds_up());
    };
    check_dfs(world, None);
}

#[test]
fn of_a_late_completion_and_a_takeover_one_wins() {
    let world = || {
        let world = World::new(10);
        let first = world.claim("k", 1).unwrap();
        world.pass(LEASE);
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
fn numbers_rise_though_records_are_deleted_and_purged_meanwhile() {
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
        side_by_side(
            &world,
            [in_turn, in_turn, |world| {
                world.pass(Duration::from_secs(2));
                world.store.sweep(10);
            }],
        );
        let mut numbers: Vec<_> = world.grants.lock().unwrap().iter().map(|grant| grant.fencing).collect();
        let granted = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() == granted && world.adds_up(), "{numbers:?}");
    };
    check_random(world, RANDOM);
}

fn thread_number() -> u64 {
    let name = format!("{:?}", thread::current().id());
    name.bytes().filter(u8::is_ascii_digit).fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

#[test]
fn the_bound_holds_for_claims_side_by_side() {
    let world = || {
        let world = World::new(2);
        let parts: [fn(&World); 3] =
            [|world| drop(world.claim("a", 1)), |world| drop(world.claim("b", 2)), |world| drop(world.claim("c", 3))];
        side_by_side(&world, parts);
        assert!(world.granted() == 2 && world.store.len() == 2 && world.adds_up());
    };
    check_random(world, RANDOM);
}

/// That these can go red: a store that looks first and writes then, each under the lock, grants twice.
#[test]
#[should_panic(expected = "granted twice")]
fn a_look_before_the_lock_is_found_out() {
    let world = || {
        let world = World::new(10);
        let looks_first: fn(&World) = |world| {
            if block_on(world.store.peek(&key("k"))).unwrap().is_none() {
                let granted = Grant { fencing: Fencing(1), attempt: 1, lease: LEASE, taken_over: None };
                world.grants.lock().unwrap().push(granted);
                drop(block_on(world.store.claim(&request("k", 1))));
            }
        };
        side_by_side(&world, [looks_first, looks_first]);
        assert_eq!(world.granted(), 1, "granted twice");
    };
    check_dfs(world, None);
}

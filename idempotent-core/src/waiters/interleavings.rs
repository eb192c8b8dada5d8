//! Interleavings of threads that wait for a key and threads that settle it.
#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use shuttle::future::block_on;
use shuttle::sync::Mutex;
use shuttle::{check_dfs, check_random, thread};

use super::Waiters;

const KEY: u128 = 7;
const RANDOM: usize = 2_000;

/// The state that all threads of a test share.
#[derive(Default)]
struct World {
    waiters: Arc<Waiters>,
    settled: Mutex<bool>,
}

impl World {
    fn is_settled(&self) -> bool {
        *self.settled.lock().unwrap()
    }

    /// Watches the key before checking its state, like the executor.
    fn wait(&self) {
        loop {
            let watching = self.waiters.watch(KEY);
            if self.is_settled() {
                return;
            }
            block_on(watching);
        }
    }

    fn settle(&self) {
        *self.settled.lock().unwrap() = true;
        self.waiters.wake(KEY);
    }

    fn is_empty(&self) -> bool {
        self.waiters.waiting() == 0 && self.waiters.by_key().is_empty()
    }
}

/// Runs each function in a thread and returns the shared state after all of them. shuttle reports a thread that is
/// never woken as a deadlock.
fn side_by_side<const N: usize>(parts: [fn(&World); N]) -> Arc<World> {
    let world = Arc::new(World::default());
    let threads = parts.map(|part| {
        let world = world.clone();
        thread::spawn(move || part(&world))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world
}

#[test]
fn a_waiter_that_watches_before_it_checks_is_woken_in_every_order() {
    check_dfs(|| assert!(side_by_side([World::wait, World::settle]).is_empty()), None);
}

#[test]
fn several_waiters_are_all_woken_and_leave_no_entry() {
    let world = || assert!(side_by_side([World::wait, World::wait, World::settle]).is_empty());
    check_random(world, RANDOM);
}

#[test]
fn a_cancelled_waiter_does_not_affect_the_others() {
    let give_up = |world: &World| drop(world.waiters.watch(KEY));
    check_random(move || assert!(side_by_side([World::wait, give_up, World::settle]).is_empty()), RANDOM);
}

#[test]
fn a_second_settlement_wakes_waiters_that_came_after_the_first() {
    let world = || assert!(side_by_side([World::wait, World::settle, World::wait, World::settle]).is_empty());
    check_random(world, RANDOM);
}

#[test]
fn wake_all_wakes_waiters_of_every_key() {
    let settle_unheard = |world: &World| {
        *world.settled.lock().unwrap() = true;
        world.waiters.wake_all();
    };
    check_random(move || assert!(side_by_side([World::wait, World::wait, settle_unheard]).is_empty()), RANDOM);
}

/// Shows that these tests can fail: a thread that checks before it watches misses a settlement in between.
#[test]
#[should_panic(expected = "deadlock")]
fn a_waiter_that_checks_before_it_watches_is_never_woken() {
    let looks_first = |world: &World| {
        if !world.is_settled() {
            block_on(world.waiters.watch(KEY));
        }
    };
    check_dfs(move || drop(side_by_side([looks_first, World::settle])), None);
}

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
fn whoever_watches_before_looking_is_woken_in_every_order() {
    check_dfs(|| assert!(side_by_side([World::wait, World::settle]).is_empty()), None);
}

#[test]
fn several_waiters_are_all_woken_and_none_is_left_behind() {
    let world = || assert!(side_by_side([World::wait, World::wait, World::settle]).is_empty());
    check_random(world, RANDOM);
}

#[test]
fn a_waiter_that_gives_up_leaves_the_others_theirs() {
    let give_up = |world: &World| drop(world.waiters.watch(KEY));
    check_random(move || assert!(side_by_side([World::wait, give_up, World::settle]).is_empty()), RANDOM);
}

#[test]
fn a_key_settled_twice_wakes_who_came_in_between() {
    let world = || assert!(side_by_side([World::wait, World::settle, World::wait, World::settle]).is_empty());
    check_random(world, RANDOM);
}

#[test]
fn all_are_woken_whatever_they_wait_for() {
    let settle_unheard = |world: &World| {
        *world.settled.lock().unwrap() = true;
        world.waiters.wake_all();
    };
    check_random(move || assert!(side_by_side([World::wait, World::wait, settle_unheard]).is_empty()), RANDOM);
}

/// Shows that these tests can fail: a thread that checks before it watches misses a settlement in between.
#[test]
#[should_panic(expected = "deadlock")]
fn whoever_looks_before_watching_is_found_asleep() {
    let looks_first = |world: &World| {
        if !world.is_settled() {
            block_on(world.waiters.watch(KEY));
        }
    };
    check_dfs(move || drop(side_by_side([looks_first, World::settle])), None);
}

//! Tasks of this process that wait for a key to be settled.
#[cfg(test)]
mod interleavings;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::sync::Notify;

use crate::store::Watching;
use crate::sync::{AtomicUsize, Mutex, MutexGuard};

/// The waiting tasks of each key. Without any, settling a key costs only one atomic load.
#[derive(Default)]
pub struct Waiters {
    waiting: AtomicUsize,
    by_key: Mutex<HashMap<u128, KeyWaiters>>,
}

struct KeyWaiters {
    notify: Arc<Notify>,
    waiters: usize,
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiters({})", self.waiting())
    }
}

impl Waiters {
    /// Returns the number of waiting tasks.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Starts to watch a key, even before the returned future is polled.
    pub fn watch(self: &Arc<Self>, key: u128) -> Watching {
        // Counted before the store is asked again, so that a later settlement sees the count.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut by_key = self.by_key();
        let key_waiters = by_key.entry(key).or_insert_with(|| KeyWaiters { notify: Arc::default(), waiters: 0 });
        key_waiters.waiters += 1;
        let woken = key_waiters.notify.clone().notified_owned();
        let waiting = WaiterGuard { waiters: self.clone(), key, notify: key_waiters.notify.clone() };
        drop(by_key);
        Box::pin(async move {
            woken.await;
            drop(waiting);
        })
    }

    /// Wakes all tasks that wait for `key`. One of them gets the key if it is free, and the others wait again.
    pub fn wake(&self, key: u128) {
        if self.waiting() == 0 {
            return;
        }
        let key_waiters = self.by_key().remove(&key);
        // Notified after the lock is released, since a waker may drop a waiter.
        if let Some(key_waiters) = key_waiters {
            key_waiters.notify.notify_waiters();
        }
    }

    /// Wakes all tasks, whatever key they wait for.
    pub fn wake_all(&self) {
        let by_key = std::mem::take(&mut *self.by_key());
        for key_waiters in by_key.into_values() {
            key_waiters.notify.notify_waiters();
        }
    }

    fn by_key(&self) -> MutexGuard<'_, HashMap<u128, KeyWaiters>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct WaiterGuard {
    waiters: Arc<Waiters>,
    key: u128,
    notify: Arc<Notify>,
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        self.waiters.waiting.fetch_sub(1, Ordering::SeqCst);
        let mut by_key = self.waiters.by_key();
        // After a wake, an entry under this key belongs to later waiters.
        if let Some(key_waiters) = by_key.get_mut(&self.key)
            && Arc::ptr_eq(&key_waiters.notify, &self.notify)
        {
            key_waiters.waiters -= 1;
            if key_waiters.waiters == 0 {
                by_key.remove(&self.key);
            }
        }
    }
}

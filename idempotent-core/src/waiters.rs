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

/// Costs a settled key nothing but one load while nobody waits.
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
    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Waits from now on, polled or not.
    pub fn watch(self: &Arc<Self>, key: u128) -> Watching {
        // Counted before the store is asked again: whoever settles the key after that sees the count.
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

    /// Wakes all who wait for `key`: one of them will get it if it is free, the rest wait again.
    pub fn wake(&self, key: u128) {
        if self.waiting() == 0 {
            return;
        }
        let key_waiters = self.by_key().remove(&key);
        // Rung with the lock let go: a waker may drop a waiter.
        if let Some(key_waiters) = key_waiters {
            key_waiters.notify.notify_waiters();
        }
    }

    /// Wakes all who wait, for whichever key.
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
        // After a wake the bell under this key, if any, is a later one.
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

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
    bells: Mutex<HashMap<u128, Bell>>,
}

struct Bell {
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
        let mut bells = self.bells();
        let bell = bells.entry(key).or_insert_with(|| Bell { notify: Arc::default(), waiters: 0 });
        bell.waiters += 1;
        let rung = bell.notify.clone().notified_owned();
        let waiting = Waiting { waiters: self.clone(), key, notify: bell.notify.clone() };
        drop(bells);
        Box::pin(async move {
            rung.await;
            drop(waiting);
        })
    }

    /// Wakes all who wait for `key`: one of them will get it if it is free, the rest wait again.
    pub fn wake(&self, key: u128) {
        if self.waiting() == 0 {
            return;
        }
        let bell = self.bells().remove(&key);
        // Rung with the lock let go: a waker may drop a waiter.
        if let Some(bell) = bell {
            bell.notify.notify_waiters();
        }
    }

    /// Wakes all who wait, for whichever key.
    pub fn wake_all(&self) {
        let bells = std::mem::take(&mut *self.bells());
        for bell in bells.into_values() {
            bell.notify.notify_waiters();
        }
    }

    fn bells(&self) -> MutexGuard<'_, HashMap<u128, Bell>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Waiting {
    waiters: Arc<Waiters>,
    key: u128,
    notify: Arc<Notify>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waiters.waiting.fetch_sub(1, Ordering::SeqCst);
        let mut bells = self.waiters.bells();
        // After a wake the bell under this key, if any, is a later one.
        if let Some(bell) = bells.get_mut(&self.key)
            && Arc::ptr_eq(&bell.notify, &self.notify)
        {
            bell.waiters -= 1;
            if bell.waiters == 0 {
                bells.remove(&self.key);
            }
        }
    }
}

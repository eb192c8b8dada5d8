//! What other processes tell: a key was settled, or forgotten.
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::cache::ConsumedCache;
use crate::scripts::{FORGOTTEN, SETTLED};

/// Where slots of delay queues tell that something is due earlier than those that wait have been told.
pub(crate) const DUE: &str = "idempotent:due";

/// Shared by a store's connections.
pub(crate) struct NotificationHub {
    pub(crate) cache: ConsumedCache,
    /// What its connections listen to.
    pub(crate) channels: &'static [&'static str],
    /// By storage key, or by the slot of a delay queue.
    waiting: Mutex<HashMap<Box<[u8]>, WaiterEntry>>,
}

struct WaiterEntry {
    notify: Arc<Notify>,
    count: usize,
}

impl NotificationHub {
    pub(crate) fn new(cache: ConsumedCache) -> Self {
        Self { cache, channels: &[SETTLED, FORGOTTEN], waiting: Mutex::default() }
    }

    /// That of delay queues.
    #[cfg(feature = "delay-queue")]
    pub(crate) fn of_delays(cache: ConsumedCache) -> Self {
        Self { channels: &[DUE], ..Self::new(cache) }
    }

    /// A connection hears what is told.
    pub(crate) fn listener_added(&self) {
        self.cache.set_listening(true);
    }

    /// It does not any more: whatever was told meanwhile is not known.
    pub(crate) fn listener_lost(&self) {
        self.cache.set_listening(false);
        for waiters in self.lock().values() {
            waiters.notify.notify_waiters();
        }
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.cache.is_listening()
    }

    pub(crate) fn dispatch(&self, channel: &[u8], key: &[u8]) {
        if channel == SETTLED.as_bytes() || channel == DUE.as_bytes() {
            if let Some(waiters) = self.lock().get(key) {
                waiters.notify.notify_waiters();
            }
        } else if channel == FORGOTTEN.as_bytes() {
            self.cache.forget(key);
        }
    }

    /// A place to wait for this key.
    pub(crate) fn register(self: &Arc<Self>, key: &str) -> WaitRegistration {
        let notify = {
            let mut waiting = self.lock();
            let none = || WaiterEntry { notify: Arc::default(), count: 0 };
            let waiters = waiting.entry(key.as_bytes().into()).or_insert_with(none);
            waiters.count += 1;
            waiters.notify.clone()
        };
        WaitRegistration { hub: self.clone(), key: key.as_bytes().into(), notify }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Box<[u8]>, WaiterEntry>> {
        // Nothing under this lock panics halfway.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for NotificationHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotificationHub").field("cache", &self.cache).field("waiting", &self.lock().len()).finish()
    }
}

/// Waits for one key; given up when dropped.
pub(crate) struct WaitRegistration {
    hub: Arc<NotificationHub>,
    key: Box<[u8]>,
    pub(crate) notify: Arc<Notify>,
}

impl Drop for WaitRegistration {
    fn drop(&mut self) {
        let mut waiting = self.hub.lock();
        if let Some(waiters) = waiting.get_mut(&self.key) {
            waiters.count -= 1;
            if waiters.count == 0 {
                waiting.remove(&self.key);
            }
        }
    }
}

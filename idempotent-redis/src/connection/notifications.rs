//! Dispatch of notifications from other processes: a key was settled or forgotten.
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::cache::ConsumedCache;
use crate::lock;
use crate::scripts::{FORGOTTEN, SETTLED};

/// The channel on which delay queues announce a message that is due earlier than receivers expect.
pub(crate) const DUE: &str = "idempotent:due";

/// A hub that dispatches notifications, shared by the connections of a store.
pub(crate) struct NotificationHub {
    pub(crate) cache: ConsumedCache,
    /// Channels that the connections subscribe to.
    pub(crate) channels: &'static [&'static str],
    /// Waiters by storage key, or by the slot of a delay queue.
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

    #[cfg(feature = "delay-queue")]
    pub(crate) fn of_delays(cache: ConsumedCache) -> Self {
        Self { channels: &[DUE], ..Self::new(cache) }
    }

    /// Records that one more connection receives notifications.
    pub(crate) fn listener_added(&self) {
        self.cache.set_listening(true);
    }

    /// Records that a connection no longer receives notifications, and wakes all waiters. Notifications may have been
    /// missed.
    pub(crate) fn listener_lost(&self) {
        self.cache.set_listening(false);
        for waiters in lock(&self.waiting).values() {
            waiters.notify.notify_waiters();
        }
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.cache.is_listening()
    }

    pub(crate) fn dispatch(&self, channel: &[u8], key: &[u8]) {
        if channel == SETTLED.as_bytes() || channel == DUE.as_bytes() {
            if let Some(waiters) = lock(&self.waiting).get(key) {
                waiters.notify.notify_waiters();
            }
        } else if channel == FORGOTTEN.as_bytes() {
            self.cache.forget(key);
        }
    }

    pub(crate) fn register(self: &Arc<Self>, key: &str) -> WaitRegistration {
        let notify = {
            let mut waiting = lock(&self.waiting);
            let none = || WaiterEntry { notify: Arc::default(), count: 0 };
            let waiters = waiting.entry(key.as_bytes().into()).or_insert_with(none);
            waiters.count += 1;
            waiters.notify.clone()
        };
        WaitRegistration { hub: self.clone(), key: key.as_bytes().into(), notify }
    }
}

impl fmt::Debug for NotificationHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotificationHub")
            .field("cache", &self.cache)
            .field("waiting", &lock(&self.waiting).len())
            .finish()
    }
}

/// A registration for one key, which is removed when dropped.
pub(crate) struct WaitRegistration {
    hub: Arc<NotificationHub>,
    key: Box<[u8]>,
    pub(crate) notify: Arc<Notify>,
}

impl Drop for WaitRegistration {
    fn drop(&mut self) {
        let mut waiting = lock(&self.hub.waiting);
        if let Some(waiters) = waiting.get_mut(&self.key) {
            waiters.count -= 1;
            if waiters.count == 0 {
                waiting.remove(&self.key);
            }
        }
    }
}

//! The assignment of faults to requests.
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::Fault;

type Wanted = Box<dyn Fn(&[u8]) -> bool + Send>;

/// The faults that the test requested, and the state of the connections.
pub(super) struct Plan {
    armed: Mutex<Vec<(Wanted, Fault)>>,
    pub(super) met: watch::Sender<u64>,
    pub(super) silent: AtomicBool,
    /// The delay of every request, in microseconds.
    delay: AtomicU64,
    /// The number of connections that will still be reset.
    pub(super) resets: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) replies: AtomicU64,
}

impl Plan {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            armed: Mutex::default(),
            met: watch::Sender::new(0),
            silent: AtomicBool::new(false),
            delay: zero(),
            resets: zero(),
            connections: zero(),
            requests: zero(),
            replies: zero(),
        }
    }

    pub(super) fn arm(&self, wanted: Wanted, fault: Fault) {
        self.armed().push((wanted, fault));
    }

    pub(super) fn disarm(&self) -> usize {
        std::mem::take(&mut *self.armed()).len()
    }

    pub(super) fn left(&self) -> usize {
        self.armed().len()
    }

    /// Removes and returns the fault for this request. If several match, the first one that was armed is used.
    pub(super) fn fault(&self, request: &[u8]) -> Option<Fault> {
        let mut armed = self.armed();
        let at = armed.iter().position(|(wanted, _)| wanted(request))?;
        let (_, fault) = armed.remove(at);
        Some(fault)
    }

    /// Records that the fault was injected.
    pub(super) fn meet(&self) {
        self.met.send_modify(|met| *met += 1);
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_micros(self.delay.load(SeqCst))
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.delay.store(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX), SeqCst);
    }

    /// Returns whether the new connection is one of those to be reset.
    pub(super) fn resets_this(&self) -> bool {
        self.resets.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    fn armed(&self) -> MutexGuard<'_, Vec<(Wanted, Fault)>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<Fault> = self.armed().iter().map(|(_, fault)| *fault).collect();
        f.debug_struct("Plan").field("armed", &faults).field("met", &*self.met.borrow()).finish_non_exhaustive()
    }
}

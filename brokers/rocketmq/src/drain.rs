//! The state that decides when a closing session has ended.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

/// The deliveries of a session that are not yet settled, and the progress of its shutdown.
#[derive(Debug)]
pub(crate) struct DrainState {
    closing: AtomicBool,
    /// Number of deliveries that were taken and not answered.
    unanswered: AtomicUsize,
    /// Number of deliveries that were taken and whose answer has not reached the client.
    unreported: AtomicUsize,
    changed: Notify,
    client_ended: Mutex<bool>,
    /// Notified at the start of the shutdown and at the end of the client.
    client_changed: Condvar,
    ended: watch::Sender<bool>,
}

impl Default for DrainState {
    fn default() -> Self {
        Self {
            closing: AtomicBool::new(false),
            unanswered: AtomicUsize::new(0),
            unreported: AtomicUsize::new(0),
            changed: Notify::new(),
            client_ended: Mutex::new(false),
            client_changed: Condvar::new(),
            ended: watch::Sender::new(false),
        }
    }
}

impl DrainState {
    /// Counts deliveries that were taken.
    pub(crate) fn add(&self, deliveries: usize) {
        self.unanswered.fetch_add(deliveries, SeqCst);
        self.unreported.fetch_add(deliveries, SeqCst);
    }

    /// Records that one delivery was answered.
    pub(crate) fn note_answered(&self) {
        self.unanswered.fetch_sub(1, SeqCst);
    }

    /// Records that the client has received the answer of one delivery.
    pub(crate) fn note_reported(&self) {
        self.unreported.fetch_sub(1, SeqCst);
        self.changed.notify_one();
    }

    /// Starts the shutdown: no further deliveries are taken.
    pub(crate) fn close(&self) {
        {
            // With the lock, no thread misses the change between its check and its wait.
            let _ended = self.client_ended.lock().unwrap_or_else(PoisonError::into_inner);
            self.closing.store(true, SeqCst);
        }
        self.client_changed.notify_all();
        self.changed.notify_one();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }

    pub(crate) fn all_answered(&self) -> bool {
        self.unanswered.load(SeqCst) == 0
    }

    pub(crate) fn all_reported(&self) -> bool {
        self.unreported.load(SeqCst) == 0
    }

    /// Waits for a report or for `close`.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Records that the client has ended. The client ignores the results of calls that return afterwards.
    pub(crate) fn note_client_end(&self) {
        *self.client_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.client_changed.notify_all();
    }

    /// Blocks until the client has ended.
    pub(crate) fn wait_for_client_end(&self) {
        let mut ended = self.client_ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            ended = self.client_changed.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks for this time, or until the shutdown starts. Returns true if the time has passed.
    pub(crate) fn wait_unless_closing(&self, time: Duration) -> bool {
        let ended = self.client_ended.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |ended: &mut bool| !*ended && !self.is_closing();
        let waited = self.client_changed.wait_timeout_while(ended, time, goes_on);
        let (ended, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !*ended && !self.is_closing()
    }

    /// Records that the session has ended.
    pub(crate) fn note_end(&self) {
        self.ended.send_replace(true);
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until the session has ended and the broker knows all settlements.
    pub(crate) async fn wait_for_end(&self) {
        // The sender is a field of `self`, so the channel stays open.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

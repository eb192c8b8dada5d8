//! How a session comes to its end.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};

use tokio::sync::{Notify, watch};

/// What is still to come before a session may end.
#[derive(Debug)]
pub(crate) struct Ends {
    closing: AtomicBool,
    /// Taken, and not answered.
    unanswered: AtomicUsize,
    /// Taken, and the client does not know the answer yet.
    undone: AtomicUsize,
    changed: Notify,
    left: Mutex<bool>,
    leaving: Condvar,
    over: watch::Sender<bool>,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            closing: AtomicBool::new(false),
            unanswered: AtomicUsize::new(0),
            undone: AtomicUsize::new(0),
            changed: Notify::new(),
            left: Mutex::new(false),
            leaving: Condvar::new(),
            over: watch::Sender::new(false),
        }
    }
}

impl Ends {
    pub(crate) fn took(&self, messages: usize) {
        self.unanswered.fetch_add(messages, SeqCst);
        self.undone.fetch_add(messages, SeqCst);
    }

    /// One is answered.
    pub(crate) fn answered(&self) {
        self.unanswered.fetch_sub(1, SeqCst);
    }

    /// The client knows.
    pub(crate) fn done(&self) {
        self.undone.fetch_sub(1, SeqCst);
        self.changed.notify_one();
    }

    /// No more is taken.
    pub(crate) fn close(&self) {
        self.closing.store(true, SeqCst);
        self.changed.notify_one();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }

    pub(crate) fn all_answered(&self) -> bool {
        self.unanswered.load(SeqCst) == 0
    }

    pub(crate) fn all_done(&self) -> bool {
        self.undone.load(SeqCst) == 0
    }

    /// Something of the above.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The client has ended: calls that were never answered may return whatever they like.
    pub(crate) fn leave(&self) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.leaving.notify_all();
    }

    pub(crate) fn wait_to_leave(&self) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        while !*left {
            left = self.leaving.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn finish(&self) {
        self.over.send_replace(true);
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Until the broker knows of all that was settled.
    pub(crate) async fn over(&self) {
        // Its sender is here.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

//! What settling a delivery takes.
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::retry_headers::Marked;
use crate::session::Session;

/// What settling a delivery takes: its listener's thread waits for the answer.
#[derive(Debug)]
pub struct RocketTag {
    pub(crate) session: Arc<Session>,
    pub(crate) marked: Marked,
    /// `None` once it is given.
    answer: Mutex<Option<oneshot::Sender<Answer>>>,
    /// The copy or the dead letter is stored; only the answer is missing.
    pub(crate) copied: AtomicBool,
}

/// What a listener's thread waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Done,
    /// Nobody settles it.
    Dropped,
}

impl RocketTag {
    pub(crate) fn new(session: Arc<Session>, marked: Marked, answer: oneshot::Sender<Answer>) -> Self {
        Self { session, marked, answer: Mutex::new(Some(answer)), copied: AtomicBool::new(false) }
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    pub(crate) fn is_copied(&self) -> bool {
        self.copied.load(SeqCst)
    }

    /// `false` if the client is gone, and with it whoever waited. A second answer has no effect.
    pub(crate) fn answer(&self, answer: Answer) -> bool {
        let waiting = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(waiting) = waiting else { return true };
        self.session.ends.answered();
        waiting.send(answer).is_ok()
    }
}

/// Unsettled, it comes again; where its copy is stored, it has.
impl Drop for RocketTag {
    fn drop(&mut self) {
        self.answer(if self.is_copied() { Answer::Done } else { Answer::Dropped });
    }
}

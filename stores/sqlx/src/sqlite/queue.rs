//! A queue of calls that wait for a connection.
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::queued_call::QueuedCall;

/// Maximum number of calls in one transaction, during which other processes wait for the lock.
const MAX_CALLS: usize = 256;

/// Calls in the order of their arrival. A separate task serves a queue that is not empty, so a dropped caller does not
/// affect the answers to other callers.
#[derive(Default)]
pub(super) struct Queue(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Box<dyn QueuedCall>>,
    served: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a task serves the queue. A call that bypasses the queue would only split the next group.
    pub(super) fn is_served(&self) -> bool {
        self.lock().served
    }

    /// Returns true if the task continues. The decision uses the same lock as the start of a task.
    pub(super) fn goes_on(&self) -> bool {
        let mut waiting = self.lock();
        waiting.served = !waiting.jobs.is_empty();
        waiting.served
    }

    /// Removes the first calls, and returns those whose callers still wait.
    pub(super) fn take(&self) -> Vec<Box<dyn QueuedCall>> {
        let mut waiting = self.lock();
        let end = waiting.jobs.len().min(MAX_CALLS);
        waiting.jobs.drain(..end).filter(|job| !job.is_left()).collect()
    }

    /// Appends calls. Returns true if the caller must start a task that serves the queue.
    pub(super) fn push(&self, jobs: impl IntoIterator<Item = Box<dyn QueuedCall>>) -> bool {
        let mut waiting = self.lock();
        waiting.jobs.extend(jobs);
        let needs_task = !waiting.served && !waiting.jobs.is_empty();
        waiting.served |= needs_task;
        needs_task
    }

    /// Removes all calls of a queue whose task has ended.
    pub(super) fn abandon(&self) -> VecDeque<Box<dyn QueuedCall>> {
        let mut waiting = self.lock();
        waiting.served = false;
        mem::take(&mut waiting.jobs)
    }

    /// Removes a call. Returns true if it was in the queue.
    pub(super) fn withdraw(&self, number: u64) -> bool {
        let mut waiting = self.lock();
        let before = waiting.jobs.len();
        waiting.jobs.retain(|job| job.number() != number);
        waiting.jobs.len() < before
    }
}

#[cfg(test)]
impl Queue {
    /// Returns the number of waiting calls.
    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.lock();
        f.debug_struct("Queue").field("waiting", &waiting.jobs.len()).field("served", &waiting.served).finish()
    }
}

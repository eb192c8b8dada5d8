//! A queue for calls that arrive while the connection is in use. The caller that serves the queue executes all waiting
//! calls in one transaction, so that they share one write of the log and one `fsync`.
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use idempotent_core::{StoreError, StoreErrorKind};
use tokio::sync::oneshot;

use super::connection::ConnectionGuard;
use super::queued_call::{self, QueuedCall, QueuedRequest};
use super::requests::Request;
use super::{SqliteStore, error};

/// The most calls of one transaction: other processes wait for the lock as long as it takes.
const MOST: usize = 256;

/// Calls in the order they came. A separate task serves a queue that is not empty, so a dropped
/// caller does not affect the answers to other callers.
#[derive(Default)]
pub(super) struct Queue(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Box<dyn QueuedCall>>,
    served: bool,
}

/// The queues of a store.
#[derive(Clone, Copy, Debug)]
enum QueueKind {
    /// Claims that a reader may answer: a duplicate waits for no writer.
    Looks,
    /// Calls that may write.
    Writes,
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
    fn goes_on(&self) -> bool {
        let mut waiting = self.lock();
        waiting.served = !waiting.jobs.is_empty();
        waiting.served
    }

    /// Removes the first calls, and returns those whose callers still wait.
    fn take(&self) -> Vec<Box<dyn QueuedCall>> {
        let mut waiting = self.lock();
        let end = waiting.jobs.len().min(MOST);
        waiting.jobs.drain(..end).filter(|job| !job.is_left()).collect()
    }

    /// Removes a call. Returns true if it was in the queue.
    fn withdraw(&self, number: u64) -> bool {
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

impl SqliteStore {
    /// Sends a call, without queueing if no other call waits.
    pub(super) async fn call<A: Request>(&self, ask: A) -> Result<A::Answer, StoreError> {
        let inner = &self.0;
        let free = if inner.writes.is_served() { None } else { inner.writer.free().await? };
        match free {
            Some(mut turn) => ask.alone(self, &mut turn).await,
            None if A::MAY_BE_A_DUPLICATE && !inner.readers.is_empty() => self.wait(QueueKind::Looks, ask).await,
            None => self.wait(QueueKind::Writes, ask).await,
        }
    }

    async fn wait<A: Request>(&self, line: QueueKind, ask: A) -> Result<A::Answer, StoreError> {
        let inner = &self.0;
        let number = inner.next_job.fetch_add(1, Ordering::Relaxed);
        let (caller, mut told) = oneshot::channel();
        self.push(line, [Box::new(QueuedRequest::queued(ask, number, caller)) as Box<dyn QueuedCall>]);
        loop {
            match tokio::time::timeout(inner.writer.patience(), &mut told).await {
                // Without an answer it was in a group when its runtime ended.
                Ok(told) => return told.unwrap_or_else(|_| Err(queued_call::gone(StoreErrorKind::Ambiguous))),
                Err(_) if inner.looks.withdraw(number) || inner.writes.withdraw(number) => {
                    return Err(inner.writer.no_turn());
                }
                // It is being done.
                Err(_) => {}
            }
        }
    }

    fn queue(&self, line: QueueKind) -> &Queue {
        match line {
            QueueKind::Looks => &self.0.looks,
            QueueKind::Writes => &self.0.writes,
        }
    }

    fn push(&self, line: QueueKind, jobs: impl IntoIterator<Item = Box<dyn QueuedCall>>) {
        let mut waiting = self.queue(line).lock();
        waiting.jobs.extend(jobs);
        if waiting.served || waiting.jobs.is_empty() {
            return;
        }
        waiting.served = true;
        // Spawned with the lock let go: a runtime that is ending drops the task at once, and that takes the lock.
        drop(waiting);
        tokio::spawn(Service { store: self.clone(), line, ended: false }.run());
    }

    /// Serves one group of calls.
    async fn serve(&self, line: QueueKind) {
        let turn = match line {
            QueueKind::Looks => self.reader().await,
            QueueKind::Writes => self.0.writer.turn().await,
        };
        // Only now: what came while the connection was in use goes with them.
        let mut taken = self.queue(line).take();
        let mut jobs: Vec<&mut dyn QueuedCall> =
            taken.iter_mut().map(|job| &mut **job as &mut dyn QueuedCall).collect();
        match (line, turn) {
            _ if jobs.is_empty() => {}
            // What cannot be read goes on to the writer, which says why.
            (QueueKind::Looks, Ok(mut turn)) => drop(self.look_at(&mut turn, &mut jobs).await),
            (QueueKind::Looks, Err(_)) => {}
            (QueueKind::Writes, Ok(mut turn)) => self.write(&mut turn, &mut jobs).await,
            (QueueKind::Writes, Err(error)) => queued_call::fail(&mut jobs, &error),
        }
        taken.iter_mut().for_each(|job| job.tell());
        if let QueueKind::Looks = line {
            self.push(QueueKind::Writes, taken.into_iter().filter(|job| !job.is_left()));
        }
    }

    async fn write(&self, turn: &mut ConnectionGuard<'_>, jobs: &mut [&mut dyn QueuedCall]) {
        if let [job] = jobs {
            return job.alone(self, turn).await;
        }
        let Err(error) = self.transact(turn, jobs).await else { return };
        // An invalid call must not fail the others. If statements may have been executed, or if the lock is taken, all
        // calls get the same error.
        let surely_nothing = matches!(error.kind(), StoreErrorKind::NotApplied | StoreErrorKind::Denied);
        if !surely_nothing || error::is_lock(&error) {
            return queued_call::fail(jobs, &error);
        }
        for job in jobs {
            job.alone(self, turn).await;
        }
    }
}

/// A task that serves a queue until it is empty.
struct Service {
    store: SqliteStore,
    line: QueueKind,
    ended: bool,
}

impl Service {
    async fn run(mut self) {
        while self.store.queue(self.line).goes_on() {
            self.store.serve(self.line).await;
            // Those that were answered come back with their next call before the next group is taken.
            tokio::task::yield_now().await;
        }
        self.ended = true;
    }
}

impl Drop for Service {
    /// Marks the queue as not served if the runtime ends first: the next call starts another task.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut left = {
            let mut waiting = self.store.queue(self.line).lock();
            waiting.served = false;
            std::mem::take(&mut waiting.jobs)
        };
        for job in &mut left {
            job.fail(queued_call::gone(StoreErrorKind::NotApplied));
            job.tell();
        }
    }
}

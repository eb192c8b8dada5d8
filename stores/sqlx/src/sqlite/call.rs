//! Calls of the store. A call that arrives while the connection is in use waits in a queue. The task that serves the
//! queue executes all waiting calls in one transaction, so that they share one write of the log and one `fsync`.
use std::sync::atomic::Ordering;

use idempotent_core::{StoreError, StoreErrorKind};
use tokio::sync::oneshot;

use super::connection::ConnectionGuard;
use super::queue::Queue;
use super::queued_call::{self, QueuedCall, QueuedRequest};
use super::requests::Request;
use super::{SqliteStore, error};

/// The queues of a store.
#[derive(Clone, Copy, Debug)]
enum QueueKind {
    /// Claims that a reader may answer: a duplicate waits for no writer.
    Looks,
    /// Calls that may write.
    Writes,
}

impl SqliteStore {
    /// Sends a call, without queueing if no other call waits.
    pub(super) async fn call<A: Request>(&self, ask: A) -> Result<A::Answer, StoreError> {
        let inner = &self.0;
        let free = if inner.writes.is_served() { None } else { inner.access.writer.free().await? };
        match free {
            Some(mut turn) => ask.alone(&inner.access, &mut turn).await,
            None if A::MAY_BE_A_DUPLICATE && !inner.access.readers.is_empty() => self.wait(QueueKind::Looks, ask).await,
            None => self.wait(QueueKind::Writes, ask).await,
        }
    }

    async fn wait<A: Request>(&self, line: QueueKind, ask: A) -> Result<A::Answer, StoreError> {
        let inner = &self.0;
        let number = inner.next_job.fetch_add(1, Ordering::Relaxed);
        let (caller, mut told) = oneshot::channel();
        self.push(line, [Box::new(QueuedRequest::queued(ask, number, caller)) as Box<dyn QueuedCall>]);
        loop {
            match tokio::time::timeout(inner.access.writer.patience(), &mut told).await {
                // Without an answer, the runtime ended while a group with the call was being executed.
                Ok(told) => return told.unwrap_or_else(|_| Err(queued_call::gone(StoreErrorKind::Ambiguous))),
                Err(_) if inner.looks.withdraw(number) || inner.writes.withdraw(number) => {
                    return Err(inner.access.writer.no_turn());
                }
                // The call is being executed.
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
        // A runtime that is ending drops the task immediately, and the drop takes the queue's lock.
        if self.queue(line).push(jobs) {
            tokio::spawn(Service { store: self.clone(), line, ended: false }.run());
        }
    }

    /// Serves one group of calls.
    async fn serve(&self, line: QueueKind) {
        let turn = match line {
            QueueKind::Looks => self.0.access.reader().await,
            QueueKind::Writes => self.0.access.writer.turn().await,
        };
        // The group also contains the calls that arrived while the connection was in use.
        let mut taken = self.queue(line).take();
        let mut jobs: Vec<&mut dyn QueuedCall> =
            taken.iter_mut().map(|job| &mut **job as &mut dyn QueuedCall).collect();
        match (line, turn) {
            _ if jobs.is_empty() => {}
            // The writer executes the calls that a reader cannot answer, and returns the errors.
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
            return job.alone(&self.0.access, turn).await;
        }
        // A claim stores the lost result first.
        if self.0.access.lost.is_none() {
            let Err(error) = self.transact(turn, jobs).await else { return };
            // An invalid call must not fail the others. If statements may have been executed, or if the lock is taken, all
            // calls get the same error.
            let surely_nothing = matches!(error.kind(), StoreErrorKind::NotApplied | StoreErrorKind::Denied);
            if !surely_nothing || error::is_lock(&error) {
                return queued_call::fail(jobs, &error);
            }
        }
        for job in jobs {
            job.alone(&self.0.access, turn).await;
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
            // Callers with an answer can send their next call before the next group.
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
        for job in &mut self.store.queue(self.line).abandon() {
            job.fail(queued_call::gone(StoreErrorKind::NotApplied));
            job.tell();
        }
    }
}

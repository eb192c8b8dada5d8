//! The deliveries that wait for a handler, and the workers that take them.
//!
//! A worker is a task that runs one delivery after the other, and takes the next one itself: a task or a channel for each delivery
//! would cost about as much as a claim in memory. The dispatcher starts workers, settles
//! deliveries without a run, and handles errors of the source.
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tracing::Instrument;

use super::lanes::Lanes;
use super::message_log::without_run;
use super::state::{ConsumerState, DeliveryJob, Phase};
use super::worker::{UNNOTED, WorkerResult, WorkerTask, put_off, work};
use crate::SourceError;
use crate::consumer::counts::DeliveryEnd;
use crate::consumer::decision::Decision;
use crate::handler::{HandlerRun, PreparedRun};

/// The waiting deliveries of a consumer.
pub(super) struct JobQueue<Tag> {
    shared: Arc<ConsumerState<Tag>>,
    state: Mutex<QueueState<Tag>>,
    /// Wakes an idle worker.
    ready: Notify,
    /// Wakes the dispatcher.
    ordered: Notify,
    /// The largest number of workers.
    most: usize,
}

struct QueueState<Tag> {
    lanes: Lanes<QueuedJob<Tag>>,
    /// The number of workers that run or will be started.
    workers: usize,
    /// The number of workers that wait, and were not woken.
    idle: usize,
    /// True once the consumer was dropped.
    is_closed: bool,
    orders: Orders<Tag>,
}

/// A delivery that waits for a free handler.
struct QueuedJob<Tag> {
    job: DeliveryJob<Tag>,
    run: HandlerRun,
}

/// The tasks of the dispatcher.
pub(super) struct Orders<Tag> {
    /// The number of workers to start.
    pub(super) workers: usize,
    /// The deliveries to settle without a run.
    pub(super) settlements: Vec<(DeliveryJob<Tag>, Decision, DeliveryEnd)>,
    /// The error of a source that failed permanently, or that refused to settle a delivery.
    pub(super) failure: Option<SourceError>,
}

impl<Tag> Default for Orders<Tag> {
    fn default() -> Self {
        Self { workers: 0, settlements: Vec::new(), failure: None }
    }
}

impl<Tag: Send + Sync + 'static> JobQueue<Tag> {
    /// Creates a queue with at most this number of workers.
    pub(super) fn new(shared: Arc<ConsumerState<Tag>>, most: usize) -> Self {
        let state =
            QueueState { lanes: Lanes::new(), workers: 0, idle: 0, is_closed: false, orders: Orders::default() };
        Self { shared, state: Mutex::new(state), ready: Notify::new(), ordered: Notify::new(), most }
    }

    fn state(&self) -> MutexGuard<'_, QueueState<Tag>> {
        // The code under this lock does not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a received delivery, or has it settled without a run.
    pub(super) fn take(&self, job: DeliveryJob<Tag>) {
        let shared = &self.shared;
        if shared.has_reached(Phase::Draining) {
            return self.settle(job, Decision::GiveBack, DeliveryEnd::GivenBack);
        }
        if let Some(end) = without_run(&job) {
            return self.settle(job, Decision::Ack, end);
        }
        if let Some((decision, end)) = shared.triage(job.delivery()) {
            return self.settle(job, decision, end);
        }
        if !job.held.noted {
            return self.settle(job, put_off(UNNOTED, "the message log is down"), DeliveryEnd::Deferred);
        }
        match shared.prepare(&job) {
            Ok(PreparedRun { lane, run }) => self.push(lane, QueuedJob { job, run }),
            Err(decision) => self.settle(job, decision, DeliveryEnd::DeadLettered),
        }
    }

    fn push(&self, lane: Option<u128>, queued: QueuedJob<Tag>) {
        let mut state = self.state();
        // Checked under the lock, so that a drain finds each queued delivery.
        if state.is_closed || self.shared.has_reached(Phase::Draining) {
            drop(state);
            return self.settle(queued.job, Decision::GiveBack, DeliveryEnd::GivenBack);
        }
        if state.lanes.push(lane, queued) {
            self.call_worker(state);
        }
    }

    /// Wakes or starts a worker for a ready delivery, unless all of them run. A running worker looks for the next delivery itself.
    fn call_worker(&self, mut state: MutexGuard<'_, QueueState<Tag>>) {
        if state.idle > 0 {
            state.idle -= 1;
            drop(state);
            self.ready.notify_one();
        } else if state.workers < self.most {
            state.workers += 1;
            state.orders.workers += 1;
            drop(state);
            self.ordered.notify_one();
        }
    }

    /// Has a delivery settled without a run.
    fn settle(&self, job: DeliveryJob<Tag>, decision: Decision, end: DeliveryEnd) {
        let mut state = self.state();
        if !state.is_closed {
            state.orders.settlements.push((job, decision, end));
            self.ordered.notify_one();
        }
    }

    /// Reports the error of a source.
    pub(super) fn fail(&self, error: SourceError) {
        self.state().orders.failure.get_or_insert(error);
        self.ordered.notify_one();
    }

    /// Takes the tasks of the dispatcher.
    pub(super) fn take_orders(&self) -> Orders<Tag> {
        std::mem::take(&mut self.state().orders)
    }

    /// Waits until the dispatcher may have tasks.
    pub(super) async fn ordered(&self) {
        self.ordered.notified().await;
    }

    /// Drops waiting deliveries that were revoked.
    pub(super) fn drop_revoked(&self) {
        let revoked = self.state().lanes.take(|waiting| waiting.job.held.is_revoked());
        revoked.into_iter().for_each(|waiting| waiting.job.end(DeliveryEnd::Revoked));
    }

    /// Gives waiting deliveries back, and lets idle workers end. Called after the phase has become [`Phase::Draining`].
    pub(super) fn drain(&self) {
        let waiting = self.state().lanes.take(|_| true);
        waiting.into_iter().for_each(|waiting| self.settle(waiting.job, Decision::GiveBack, DeliveryEnd::GivenBack));
        self.ready.notify_waiters();
    }

    /// Drops all deliveries. A task that is being aborted takes no other one.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let dropped = (state.lanes.take(|_| true), std::mem::take(&mut state.orders));
        drop(state);
        drop(dropped);
    }

    /// Waits for a delivery. Returns `None` when the consumer drains.
    async fn next(&self) -> Option<(Option<u128>, QueuedJob<Tag>)> {
        loop {
            if let Some(next) = self.state().lanes.next() {
                return Some(next);
            }
            // Registered before the second look, so that no call is missed.
            let mut called = pin!(self.ready.notified());
            called.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(next) = state.lanes.next() {
                    return Some(next);
                }
                if state.is_closed || self.shared.has_reached(Phase::Draining) {
                    return None;
                }
                state.idle += 1;
            }
            called.await;
        }
    }

    /// Lets the next delivery of a lane run. If the ended one is retried, and the source keeps order, the waiting ones are deferred.
    fn end_of_lane(&self, lane: u128, result: &WorkerResult) {
        let behind = match result.put_off.filter(|_| self.shared.capabilities.keeps_order) {
            Some(after) => self.state().lanes.take_behind(lane).into_iter().map(|waiting| (after, waiting)).collect(),
            None => Vec::new(),
        };
        for (after, waiting) in behind {
            let decision = put_off(after, "an earlier message of its key is retried");
            self.settle(waiting.job, decision, DeliveryEnd::Deferred);
        }
        self.state().lanes.done(lane);
    }
}

/// Runs deliveries until the consumer drains.
pub(super) async fn serve<Tag: Send + Sync + 'static>(queue: Arc<JobQueue<Tag>>) {
    let mut worker = Worker { queue, lane: None };
    while let Some((lane, QueuedJob { job, run })) = worker.queue.next().await {
        worker.lane = lane;
        let span = job.span(true);
        let running = work(job, WorkerTask::Run(run));
        let result = match span {
            Some(span) => running.instrument(span).await,
            None => running.await,
        };
        if let Some(lane) = worker.lane.take() {
            worker.queue.end_of_lane(lane, &result);
        }
        if let Some(refused) = result.refused {
            worker.queue.fail(refused);
        }
        // A worker whose deliveries never wait would block its thread.
        tokio::task::consume_budget().await;
    }
}

/// A worker. If it panics, the drop frees the lane of its delivery, and its place for another worker.
struct Worker<Tag: Send + Sync + 'static> {
    queue: Arc<JobQueue<Tag>>,
    lane: Option<u128>,
}

impl<Tag: Send + Sync + 'static> Drop for Worker<Tag> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.workers -= 1;
        if let Some(lane) = self.lane {
            state.lanes.done(lane);
        }
        if state.lanes.has_ready() {
            self.queue.call_worker(state);
        }
    }
}

//! The tasks that run deliveries. Each task runs one delivery after the other, because a task for each delivery would cost about as
//! much as a claim in memory.
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};
use tracing::{Instrument, Span, error};

use super::state::DeliveryJob;
use super::worker::{WorkerResult, WorkerTask, work};
use crate::handler::HandlerRun;

/// The tasks that run deliveries: as many as have run at once. Dropping the pool drops all runs.
pub(super) struct WorkerPool<Tag> {
    tasks: JoinSet<()>,
    slots: Vec<Slot<Tag>>,
    /// The slots whose tasks wait for a delivery.
    idle: Vec<usize>,
    /// The slots whose tasks have panicked.
    vacant: Vec<usize>,
    ends: mpsc::UnboundedSender<(usize, WorkerResult)>,
    ended: mpsc::UnboundedReceiver<(usize, WorkerResult)>,
}

/// A task, and the lane of its delivery.
struct Slot<Tag> {
    task: Id,
    jobs: mpsc::UnboundedSender<PooledJob<Tag>>,
    lane: Option<u128>,
}

/// A delivery with its run, and its observer's span if there is one.
type PooledJob<Tag> = (DeliveryJob<Tag>, HandlerRun, Option<Span>);

impl<Tag: Send + Sync + 'static> WorkerPool<Tag> {
    pub(super) fn new() -> Self {
        let (ends, ended) = mpsc::unbounded_channel();
        Self { tasks: JoinSet::new(), slots: Vec::new(), idle: Vec::new(), vacant: Vec::new(), ends, ended }
    }

    /// Returns the number of deliveries that run.
    pub(super) fn running(&self) -> usize {
        self.slots.len() - self.idle.len() - self.vacant.len()
    }

    /// Runs a delivery of this lane, inside of the observer's span if there is one.
    pub(super) fn run(&mut self, lane: Option<u128>, job: DeliveryJob<Tag>, run: HandlerRun) {
        let span = job.span(true);
        let at = self.idle.pop().unwrap_or_else(|| self.start());
        let slot = &mut self.slots[at];
        slot.lane = lane;
        // An idle task waits for deliveries, unless the runtime ends. A delivery that it does not take is not settled.
        let _ = slot.jobs.send((job, run, span));
    }

    /// Starts a task, and returns its slot.
    fn start(&mut self) -> usize {
        let at = self.vacant.pop().unwrap_or(self.slots.len());
        let (jobs, given) = mpsc::unbounded_channel();
        let task = self.tasks.spawn(serve(at, given, self.ends.clone())).id();
        let slot = Slot { task, jobs, lane: None };
        match self.slots.get_mut(at) {
            Some(vacant) => *vacant = slot,
            None => self.slots.push(slot),
        }
        at
    }

    /// Polls for the end of a run, but not for the panic of a worker.
    pub(super) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<(Option<u128>, WorkerResult)> {
        match self.ended.poll_recv(context) {
            Poll::Ready(Some((at, result))) => Poll::Ready(self.freed(at, result)),
            // The pool has a sender of its own, so the channel stays open.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    fn freed(&mut self, at: usize, result: WorkerResult) -> (Option<u128>, WorkerResult) {
        self.idle.push(at);
        (self.slots[at].lane.take(), result)
    }

    /// Waits for the end of a run. Returns its lane and its result, which is empty if the worker panicked.
    ///
    /// # Cancellation
    /// No end is lost.
    pub(super) async fn end(&mut self) -> (Option<u128>, WorkerResult) {
        loop {
            let failed = tokio::select! {
                biased;
                Some(Err(failed)) = self.tasks.join_next() => failed,
                Some((at, result)) = self.ended.recv() => return self.freed(at, result),
                else => std::future::pending().await,
            };
            error!(target: "idempotent", error = %failed, "consumer: a worker failed");
            if let Some(at) = self.slots.iter().position(|slot| slot.task == failed.id()) {
                // The end of the runtime also ends the idle tasks.
                self.idle.retain(|idle| *idle != at);
                self.vacant.push(at);
                return (self.slots[at].lane.take(), WorkerResult::default());
            }
        }
    }
}

async fn serve<Tag: Send + Sync + 'static>(
    at: usize,
    mut jobs: mpsc::UnboundedReceiver<PooledJob<Tag>>,
    ends: mpsc::UnboundedSender<(usize, WorkerResult)>,
) {
    while let Some((job, run, span)) = jobs.recv().await {
        let worker = work(job, WorkerTask::Run(run));
        let result = match span {
            Some(span) => worker.instrument(span).await,
            None => worker.await,
        };
        if ends.send((at, result)).is_err() {
            return;
        }
    }
}

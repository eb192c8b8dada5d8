//! The queue of batch members. Messages that arrive during a batch form the next batch. A full batch starts at once.
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::handler::{HandlerEnd, RunProgress};

/// A delivery whose worker waits for its batch.
pub(super) struct BatchMember<I> {
    pub(super) item: I,
    pub(super) progress: Weak<dyn RunProgress>,
    pub(super) tell: oneshot::Sender<MemberEvent<I>>,
}

/// The event that a member waits for.
pub(super) enum MemberEvent<I> {
    /// The member runs its own item and those of these members.
    Lead(I, Vec<BatchMember<I>>),
    /// The end of the member's run.
    Ended(HandlerEnd),
}

pub(super) struct BatchQueue<I> {
    most: usize,
    state: Mutex<QueueState<I>>,
}

struct QueueState<I> {
    waiting: VecDeque<BatchMember<I>>,
    /// The number of running batches.
    running: usize,
}

impl<I> QueueState<I> {
    fn is_due(&self, most: usize) -> bool {
        !self.waiting.is_empty() && (self.running == 0 || self.waiting.len() >= most.max(1))
    }
}

impl<I> BatchQueue<I> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, state: Mutex::new(QueueState { waiting: VecDeque::new(), running: 0 }) }
    }

    /// Returns the maximum size of a batch.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Adds a member. The worker of the member receives the next event.
    pub(super) async fn join(&self, member: BatchMember<I>) {
        self.state().waiting.push_back(member);
        // Lets the deliveries that arrived together join the queue.
        yield_now().await;
        self.start();
    }

    /// Returns a guard that marks a batch as running until the guard is dropped.
    pub(super) fn running(self: &Arc<Self>) -> RunningBatch<I> {
        RunningBatch(self.clone())
    }

    /// Gives a batch to its first member, if no batch runs or the batch is full.
    fn start(&self) {
        let mut state = self.state();
        if !state.is_due(self.most) {
            return;
        }
        // Drops members whose workers were dropped.
        state.waiting.retain(|member| !member.tell.is_closed());
        if !state.is_due(self.most) {
            return;
        }
        let Some(BatchMember { item, tell, .. }) = state.waiting.pop_front() else { return };
        let others = state.waiting.len().min(self.most.saturating_sub(1));
        let others = state.waiting.drain(..others).collect();
        // Fails only if the leader is dropped, and a stopping consumer drops all members.
        if tell.send(MemberEvent::Lead(item, others)).is_ok() {
            state.running += 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState<I>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that marks a batch as running.
pub(super) struct RunningBatch<I>(Arc<BatchQueue<I>>);

impl<I> Drop for RunningBatch<I> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.start();
    }
}

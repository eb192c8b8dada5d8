//! Who runs with whom: what arrives while a batch runs makes the next one, and a full one need not wait for it.
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::task::yield_now;

use crate::work::{Begun, Ended};

/// A delivery whose worker waits for its batch.
pub(super) struct Member<I> {
    pub(super) item: I,
    pub(super) begun: Begun,
    pub(super) tell: mpsc::UnboundedSender<Turn<I>>,
}

/// What the worker of a member is told.
pub(super) enum Turn<I> {
    /// It is the first of these: it runs them.
    Lead(Vec<Member<I>>),
    /// Its own end.
    Ended(Ended),
}

pub(super) struct Gathering<I> {
    most: usize,
    state: Mutex<State<I>>,
}

struct State<I> {
    waiting: VecDeque<Member<I>>,
    /// Batches.
    running: usize,
}

impl<I> Gathering<I> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, state: Mutex::new(State { waiting: VecDeque::new(), running: 0 }) }
    }

    /// How many messages a batch has at most.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Waits with the others. Its worker is told what happens next.
    pub(super) async fn join(&self, member: Member<I>) {
        self.state().waiting.push_back(member);
        // Those that were delivered with it are on their way.
        yield_now().await;
        self.start();
    }

    /// A batch runs until this is dropped.
    pub(super) fn running(self: &Arc<Self>) -> Running<I> {
        Running(self.clone())
    }

    /// Hands a batch to its first member, if none runs, or it is full.
    fn start(&self) {
        let mut state = self.state();
        // Those whose workers were dropped as they waited.
        state.waiting.retain(|member| !member.tell.is_closed());
        let (waiting, most) = (state.waiting.len(), self.most.max(1));
        if waiting == 0 || state.running > 0 && waiting < most {
            return;
        }
        let batch: Vec<_> = state.waiting.drain(..waiting.min(most)).collect();
        let Some(leader) = batch.first().map(|member| member.tell.clone()) else { return };
        // One that is dropped right now: all are, since the consumer stops.
        if leader.send(Turn::Lead(batch)).is_ok() {
            state.running += 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State<I>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While a batch runs.
pub(super) struct Running<I>(Arc<Gathering<I>>);

impl<I> Drop for Running<I> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.start();
    }
}

//! Joins the calls of concurrent tasks. With nothing under way a caller sends its call itself; else one task collects
//! what comes and sends it in as few commands as there are kinds of calls. Two such turns are under way at most: the
//! server works on one while the answers to the other are handed out.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::batching::call::{ScriptCall, ScriptReply};
use crate::batching::flush::{self, SendOptions};
use crate::connection::Connection;
use crate::durability::Durability;
use crate::failure::CallFailure;

/// Turns under way at once. With one the server idles while answers are handed out, with three they get smaller.
const MAX_FLUSHES: usize = 2;
/// Trips under way at once that wait for replicas or a disk: they wait one after the other, and what comes behind them
/// with them. More would look as if the server were dead.
pub(crate) const MAX_WAITING_FLUSHES: u32 = 2;

/// The calls for one server.
#[derive(Clone, Debug)]
pub(crate) struct CallBatcher(Arc<BatcherInner>);

#[derive(Debug)]
struct BatcherInner {
    connection: Connection,
    options: SendOptions,
    state: Mutex<BatchState>,
    wait_permits: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct BatchState {
    queued: Vec<QueuedCall>,
    flushes: usize,
}

/// A call, and who waits for its answer.
#[derive(Debug)]
struct QueuedCall {
    call: ScriptCall,
    reply_to: oneshot::Sender<Result<ScriptReply, CallFailure>>,
}

impl CallBatcher {
    pub(crate) fn new(connection: Connection, options: SendOptions) -> Self {
        let wait_permits = Arc::new(Semaphore::new(MAX_WAITING_FLUSHES as usize));
        Self(Arc::new(BatcherInner { connection, options, state: Mutex::default(), wait_permits }))
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    fn lock(&self) -> MutexGuard<'_, BatchState> {
        // Nothing under this lock panics halfway.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call, alone or with others.
    ///
    /// # Cancellation
    /// It may be applied or not; others that went with it are not touched.
    pub(crate) async fn send(&self, call: &ScriptCall) -> Result<ScriptReply, CallFailure> {
        let pending = {
            let mut state = self.lock();
            if state.flushes == 0 {
                state.flushes = 1;
                None
            } else {
                let (reply_to, pending) = oneshot::channel();
                state.queued.push(QueuedCall { call: call.clone(), reply_to });
                if state.flushes < MAX_FLUSHES {
                    state.flushes += 1;
                    drop(state);
                    FlushTask::of(self.clone()).spawn();
                }
                Some(pending)
            }
        };
        match pending {
            None => {
                // Handed over when this ends, answered or dropped.
                let _flush = InlineFlush(self);
                if self.needs_wait(&[call]) {
                    return flush::single(Box::pin(self.send_and_wait(&[call], false)).await);
                }
                // A future of its own: those that only wait for an answer need not carry it.
                Box::pin(flush::send_one(&self.0.connection, &self.0.options, call)).await
            }
            // Without an answer the turn ended with its runtime.
            Some(pending) => pending.await.unwrap_or_else(|_| {
                Err(CallFailure::ambiguous("call interrupted: the runtime that sent it has shut down"))
            }),
        }
    }

    /// Sends these in their order, whatever else is under way. Each has its own answer.
    pub(crate) async fn send_all(&self, calls: &[&ScriptCall]) -> Vec<Result<ScriptReply, CallFailure>> {
        if self.needs_wait(calls) {
            return self.send_and_wait(calls, false).await;
        }
        flush::send_all(&self.0.connection, &self.0.options, calls, false).await
    }

    /// Sends a call by itself, to a node that its slot is being moved to.
    pub(crate) async fn send_asking(&self, call: &ScriptCall) -> Result<ScriptReply, CallFailure> {
        if self.needs_wait(&[call]) {
            return flush::single(self.send_and_wait(&[call], true).await);
        }
        flush::single(flush::send_all(&self.0.connection, &self.0.options, &[call], true).await)
    }

    /// Whether a trip with these waits for more than the answers.
    fn needs_wait(&self, calls: &[&ScriptCall]) -> bool {
        self.0.options.durability != Durability::Primary && calls.iter().any(|call| call.params.waits)
    }

    /// Sends these when it is their turn to wait. By a task: the server goes on waiting when the caller has given up.
    async fn send_and_wait(&self, calls: &[&ScriptCall], asking: bool) -> Vec<Result<ScriptReply, CallFailure>> {
        let permit = self.permit().await;
        let (batcher, owned) = (self.clone(), calls.iter().map(|call| (*call).clone()).collect::<Vec<_>>());
        let sent = tokio::spawn(async move {
            let _permit = permit;
            let calls: Vec<&ScriptCall> = owned.iter().collect();
            flush::send_all(&batcher.0.connection, &batcher.0.options, &calls, asking).await
        });
        sent.await.unwrap_or_else(|_| {
            vec![Err(CallFailure::ambiguous("call interrupted: the runtime that sent it has shut down")); calls.len()]
        })
    }

    /// To wait for replicas or a disk.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        // Never closed.
        self.0.wait_permits.clone().acquire_owned().await.ok()
    }

    /// Whether somebody waits; if not, the turn is given back.
    fn continue_or_finish(&self) -> bool {
        let mut state = self.lock();
        if state.queued.is_empty() {
            state.flushes -= 1;
            return false;
        }
        true
    }

    fn take_queued(&self) -> Vec<QueuedCall> {
        std::mem::take(&mut self.lock().queued)
    }

    /// Everything that waits, in one turn.
    async fn flush_queued(&self) {
        let waits = self.0.options.durability != Durability::Primary;
        // First: who gives up until then need not be sent, and who comes until then goes along.
        let _permit = if waits { self.permit().await } else { None };
        let mut queued_calls = self.take_queued();
        // Dropped callers do not want it any more, and nothing was sent.
        queued_calls.retain(|queued_call| !queued_call.reply_to.is_closed());
        let (calls, mut senders): (Vec<ScriptCall>, Vec<_>) =
            queued_calls.into_iter().map(|queued_call| (queued_call.call, Some(queued_call.reply_to))).unzip();
        // Of each kind together: no caller can tell who was first.
        let mut order: Vec<usize> = (0..calls.len()).collect();
        order.sort_by(|one, next| calls[*one].params.cmp(&calls[*next].params));
        let sorted: Vec<&ScriptCall> = order.iter().map(|at| &calls[*at]).collect();
        let answers = flush::send_all(&self.0.connection, &self.0.options, &sorted, false).await;
        for (at, answer) in order.iter().zip(answers) {
            if let Some(reply_to) = senders[*at].take() {
                // It may have gone meanwhile.
                let _ = reply_to.send(answer);
            }
        }
    }
}

/// The turn of a caller that sends its own call.
struct InlineFlush<'a>(&'a CallBatcher);

impl Drop for InlineFlush<'_> {
    /// To those that came meanwhile: else they would wait for the next caller.
    fn drop(&mut self) {
        if self.0.continue_or_finish() {
            FlushTask::of(self.0.clone()).spawn();
        }
    }
}

/// The right to send.
struct FlushTask {
    batcher: CallBatcher,
    finished: bool,
}

impl FlushTask {
    fn of(batcher: CallBatcher) -> Self {
        Self { batcher, finished: false }
    }

    fn spawn(self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(self.run());
        }
    }

    async fn run(mut self) {
        loop {
            // Those that were just answered come back with their next call before this goes.
            tokio::task::yield_now().await;
            self.batcher.flush_queued().await;
            if !self.batcher.continue_or_finish() {
                self.finished = true;
                return;
            }
        }
    }
}

impl Drop for FlushTask {
    /// Where the runtime ends first: another turn takes what waits. Where there is none, nobody would.
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let left = {
            let mut state = self.batcher.lock();
            state.flushes -= 1;
            if state.flushes == 0 { std::mem::take(&mut state.queued) } else { Vec::new() }
        };
        for queued_call in left {
            let _ = queued_call
                .reply_to
                .send(Err(CallFailure::not_applied("call not sent: the runtime that queued it has shut down")));
        }
    }
}

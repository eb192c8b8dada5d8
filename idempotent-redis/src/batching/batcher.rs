//! Batching of the calls of concurrent tasks.
//!
//! If no batch is in flight, a caller sends its call itself. Otherwise a task collects the queued calls and sends them
//! in as few commands as there are kinds of calls. At most two batches are in flight: the server works on one while the
//! replies to the other are distributed. A claim is refused while [`MAX_QUEUED`] calls wait, so that a silent server occupies a
//! bounded amount of memory. Each node of a cluster has a batcher of its own.
use std::sync::{Arc, Mutex};

use idempotent_core::StoreErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::batching::call::ScriptCall;
use crate::batching::call::reply::ScriptReply;
use crate::batching::flush::{self, SendOptions};
use crate::connection::Connection;
use crate::durability::Durability;
use crate::failure::CallFailure;
use crate::lock;
use crate::scripts::Script;

/// Maximum number of batches in flight. With one, the server idles while replies are distributed; with three, batches
/// get smaller.
const MAX_FLUSHES: usize = 2;
/// Maximum number of batches in flight that wait for replicas or a disk.
///
/// The server processes the waits one after the other and delays everything sent after them. More waiting batches would
/// look like a dead server.
pub(crate) const MAX_WAITING_FLUSHES: u32 = 2;

/// Maximum number of calls that wait for a batch to one server. A server that answers 50,000 calls per second has answered as many
/// after 80 ms, so more calls mean that the server is too slow or does not answer.
const MAX_QUEUED: usize = 4_096;

/// A batcher for the calls to one server.
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

/// A call in the queue, with the channel for its reply.
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

    /// Sends a call, alone or batched with others.
    ///
    /// # Cancellation
    /// The call may or may not be applied. Other calls of the batch are not affected.
    pub(crate) async fn send(&self, call: &ScriptCall) -> Result<ScriptReply, CallFailure> {
        let pending = {
            let mut state = lock(&self.0.state);
            if state.flushes == 0 {
                state.flushes = 1;
                None
            } else {
                // Calls of runs in progress are always queued: their number is bounded by that of the runs.
                if state.queued.len() >= MAX_QUEUED && call.params.script == Script::Claim {
                    return Err(CallFailure::new(
                        StoreErrorKind::Busy,
                        format!(
                            "claim not sent: {MAX_QUEUED} calls wait for this server already; start fewer runs, or add servers"
                        ),
                    ));
                }
                let (reply_to, pending) = oneshot::channel();
                state.queued.push(QueuedCall { call: call.clone(), reply_to });
                if state.flushes < MAX_FLUSHES {
                    state.flushes += 1;
                    drop(state);
                    FlushTask::spawn(self.clone());
                }
                Some(pending)
            }
        };
        match pending {
            None => {
                // Starts a flush of the queue when dropped, after the reply or on cancellation.
                let _flush = InlineFlush(self);
                if self.needs_wait(&[call]) {
                    return flush::single(Box::pin(self.send_and_wait(&[call], false)).await);
                }
                // Boxed, so that callers that only wait for a reply do not carry this future.
                Box::pin(flush::send_one(&self.0.connection, &self.0.options, call)).await
            }
            // A closed channel means that the flush ended with its runtime.
            Some(pending) => pending.await.unwrap_or_else(|_| {
                Err(CallFailure::ambiguous("call interrupted: the runtime that sent it has shut down"))
            }),
        }
    }

    /// Sends calls in order, independent of other batches. Each call has its own reply.
    pub(crate) async fn send_all(&self, calls: &[&ScriptCall]) -> Vec<Result<ScriptReply, CallFailure>> {
        self.send_in_order(calls, false).await
    }

    /// Sends a call, preceded by `ASKING`, to the node that its slot is being moved to.
    pub(crate) async fn send_asking(&self, call: &ScriptCall) -> Result<ScriptReply, CallFailure> {
        flush::single(self.send_in_order(&[call], true).await)
    }

    async fn send_in_order(&self, calls: &[&ScriptCall], asking: bool) -> Vec<Result<ScriptReply, CallFailure>> {
        if self.needs_wait(calls) {
            return self.send_and_wait(calls, asking).await;
        }
        flush::send_all(&self.0.connection, &self.0.options, calls, asking).await
    }

    /// Returns whether these calls wait for replicas or a disk.
    fn needs_wait(&self, calls: &[&ScriptCall]) -> bool {
        self.0.options.durability != Durability::Primary && calls.iter().any(|call| call.params.waits)
    }

    /// Sends calls that wait for replicas or a disk, once a permit is free.
    ///
    /// A task sends them, because the server keeps waiting after the caller has given up.
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

    /// Acquires a permit for a batch that waits for replicas or a disk.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.0.wait_permits.clone().acquire_owned().await.ok()
    }

    /// Returns whether calls are queued. If the queue is empty, ends the caller's flush.
    fn continue_or_finish(&self) -> bool {
        let mut state = lock(&self.0.state);
        if state.queued.is_empty() {
            state.flushes -= 1;
            return false;
        }
        true
    }

    /// Sends all queued calls in one batch.
    async fn flush_queued(&self) {
        let waits = self.0.options.durability != Durability::Primary;
        // Taken first, so that callers that give up in the meantime are skipped and new calls join the batch.
        let _permit = if waits { self.permit().await } else { None };
        let mut queued_calls = std::mem::take(&mut lock(&self.0.state).queued);
        // The callers of these calls are gone, and nothing was sent yet.
        queued_calls.retain(|queued_call| !queued_call.reply_to.is_closed());
        let (calls, mut senders): (Vec<ScriptCall>, Vec<_>) =
            queued_calls.into_iter().map(|queued_call| (queued_call.call, Some(queued_call.reply_to))).unzip();
        // Groups calls of one kind; callers cannot observe the order.
        let mut order: Vec<usize> = (0..calls.len()).collect();
        order.sort_by(|one, next| calls[*one].params.cmp(&calls[*next].params));
        let sorted: Vec<&ScriptCall> = order.iter().map(|at| &calls[*at]).collect();
        let answers = flush::send_all(&self.0.connection, &self.0.options, &sorted, false).await;
        for (at, answer) in order.iter().zip(answers) {
            if let Some(reply_to) = senders[*at].take() {
                // The caller may be gone by now.
                let _ = reply_to.send(answer);
            }
        }
    }
}

/// A guard for a caller that sends its own call.
struct InlineFlush<'a>(&'a CallBatcher);

impl Drop for InlineFlush<'_> {
    /// Starts a flush for the calls that were queued in the meantime.
    fn drop(&mut self) {
        if self.0.continue_or_finish() {
            FlushTask::spawn(self.0.clone());
        }
    }
}

/// A task that sends queued calls until the queue is empty.
struct FlushTask {
    batcher: CallBatcher,
    finished: bool,
}

impl FlushTask {
    fn spawn(batcher: CallBatcher) {
        let task = Self { batcher, finished: false };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(task.run());
        }
    }

    async fn run(mut self) {
        loop {
            // Lets callers that just received a reply queue their next call first.
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
    /// Releases the flush if its runtime shuts down. Without another flush, the queued calls fail.
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let left = {
            let mut state = lock(&self.batcher.0.state);
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

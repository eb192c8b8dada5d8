//! Joins the calls of concurrent tasks. With nothing under way a caller sends its call itself; else one task collects
//! what comes and sends it in as few commands as there are kinds of calls. Two such turns are under way at most: the
//! server works on one while the answers to the other are handed out.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::batching::call::{Answer, Call};
use crate::batching::flush::{self, Manner};
use crate::connection::Link;
use crate::durability::Durability;
use crate::failure::Failure;

/// Turns under way at once. With one the server idles while answers are handed out, with three they get smaller.
const TURNS: usize = 2;
/// Trips under way at once that wait for replicas or a disk: they wait one after the other, and what comes behind them
/// with them. More would look as if the server were dead.
pub(crate) const WAITING: u32 = 2;

/// The calls for one server.
#[derive(Clone, Debug)]
pub(crate) struct Lane(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    link: Link,
    manner: Manner,
    state: Mutex<State>,
    may_wait: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Job>,
    turns: usize,
}

/// A call, and who waits for its answer.
#[derive(Debug)]
struct Job {
    call: Call,
    caller: oneshot::Sender<Result<Answer, Failure>>,
}

impl Lane {
    pub(crate) fn new(link: Link, manner: Manner) -> Self {
        let may_wait = Arc::new(Semaphore::new(WAITING as usize));
        Self(Arc::new(Inner { link, manner, state: Mutex::default(), may_wait }))
    }

    pub(crate) fn link(&self) -> &Link {
        &self.0.link
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics halfway.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call, alone or with others.
    ///
    /// # Cancellation
    /// It may be applied or not; others that went with it are not touched.
    pub(crate) async fn call(&self, call: &Call) -> Result<Answer, Failure> {
        let told = {
            let mut state = self.lock();
            if state.turns == 0 {
                state.turns = 1;
                None
            } else {
                let (caller, told) = oneshot::channel();
                state.waiting.push(Job { call: call.clone(), caller });
                if state.turns < TURNS {
                    state.turns += 1;
                    drop(state);
                    Turn::of(self.clone()).begin();
                }
                Some(told)
            }
        };
        match told {
            None => {
                // Handed over when this ends, answered or dropped.
                let _turn = Alone(self);
                if self.waits(&[call]) {
                    return flush::only(Box::pin(self.waited(&[call], false)).await);
                }
                // A future of its own: those that only wait for an answer need not carry it.
                Box::pin(flush::one(&self.0.link, &self.0.manner, call)).await
            }
            // Without an answer the turn ended with its runtime.
            Some(told) => told.await.unwrap_or_else(|_| Err(Failure::ambiguous("the runtime that sent it has ended"))),
        }
    }

    /// Sends these in their order, whatever else is under way. Each has its own answer.
    pub(crate) async fn all(&self, calls: &[&Call]) -> Vec<Result<Answer, Failure>> {
        if self.waits(calls) {
            return self.waited(calls, false).await;
        }
        flush::send(&self.0.link, &self.0.manner, calls, false).await
    }

    /// Sends a call by itself, to a node that its slot is being moved to.
    pub(crate) async fn asking(&self, call: &Call) -> Result<Answer, Failure> {
        if self.waits(&[call]) {
            return flush::only(self.waited(&[call], true).await);
        }
        flush::only(flush::send(&self.0.link, &self.0.manner, &[call], true).await)
    }

    /// Whether a trip with these waits for more than the answers.
    fn waits(&self, calls: &[&Call]) -> bool {
        self.0.manner.durability != Durability::Primary && calls.iter().any(|call| call.terms.waits)
    }

    /// Sends these when it is their turn to wait. By a task: the server goes on waiting when the caller has given up.
    async fn waited(&self, calls: &[&Call], asking: bool) -> Vec<Result<Answer, Failure>> {
        let permit = self.permit().await;
        let (lane, owned) = (self.clone(), calls.iter().map(|call| (*call).clone()).collect::<Vec<_>>());
        let sent = tokio::spawn(async move {
            let _permit = permit;
            let calls: Vec<&Call> = owned.iter().collect();
            flush::send(&lane.0.link, &lane.0.manner, &calls, asking).await
        });
        sent.await.unwrap_or_else(|_| vec![Err(Failure::ambiguous("the runtime that sent it has ended")); calls.len()])
    }

    /// To wait for replicas or a disk.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        // Never closed.
        self.0.may_wait.clone().acquire_owned().await.ok()
    }

    /// Whether somebody waits; if not, the turn is given back.
    fn goes_on(&self) -> bool {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.turns -= 1;
            return false;
        }
        true
    }

    fn take(&self) -> Vec<Job> {
        std::mem::take(&mut self.lock().waiting)
    }

    /// Everything that waits, in one turn.
    async fn serve(&self) {
        let waits = self.0.manner.durability != Durability::Primary;
        // First: who gives up until then need not be sent, and who comes until then goes along.
        let _permit = if waits { self.permit().await } else { None };
        let mut jobs = self.take();
        // Dropped callers do not want it any more, and nothing was sent.
        jobs.retain(|job| !job.caller.is_closed());
        let (calls, mut callers): (Vec<Call>, Vec<_>) =
            jobs.into_iter().map(|job| (job.call, Some(job.caller))).unzip();
        // Of each kind together: no caller can tell who was first.
        let mut order: Vec<usize> = (0..calls.len()).collect();
        order.sort_by(|one, next| calls[*one].terms.cmp(&calls[*next].terms));
        let sorted: Vec<&Call> = order.iter().map(|at| &calls[*at]).collect();
        let answers = flush::send(&self.0.link, &self.0.manner, &sorted, false).await;
        for (at, answer) in order.iter().zip(answers) {
            if let Some(caller) = callers[*at].take() {
                // It may have gone meanwhile.
                let _ = caller.send(answer);
            }
        }
    }
}

/// The turn of a caller that sends its own call.
struct Alone<'a>(&'a Lane);

impl Drop for Alone<'_> {
    /// To those that came meanwhile: else they would wait for the next caller.
    fn drop(&mut self) {
        if self.0.goes_on() {
            Turn::of(self.0.clone()).begin();
        }
    }
}

/// The right to send.
struct Turn {
    lane: Lane,
    given_back: bool,
}

impl Turn {
    fn of(lane: Lane) -> Self {
        Self { lane, given_back: false }
    }

    fn begin(self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(self.run());
        }
    }

    async fn run(mut self) {
        loop {
            // Those that were just answered come back with their next call before this goes.
            tokio::task::yield_now().await;
            self.lane.serve().await;
            if !self.lane.goes_on() {
                self.given_back = true;
                return;
            }
        }
    }
}

impl Drop for Turn {
    /// Where the runtime ends first: another turn takes what waits. Where there is none, nobody would.
    fn drop(&mut self) {
        if self.given_back {
            return;
        }
        let left = {
            let mut state = self.lane.lock();
            state.turns -= 1;
            if state.turns == 0 { std::mem::take(&mut state.waiting) } else { Vec::new() }
        };
        for job in left {
            let _ = job.caller.send(Err(Failure::not_applied("the runtime that was to send it has ended")));
        }
    }
}

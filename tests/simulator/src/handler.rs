//! The handler of a simulation with different ends, and the resource that it writes to.
use std::any::Any;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idempotent_core::{BatchItem, Codec, CodecError, DefaultReply, FencingToken, Handler, Lease, Rejection};

use super::events::{How, What};
use super::lookalike::{INNER, ORDERS, hash, real};
use super::plan::{End, Run};
use super::process::lock;
use super::world::{Worker, World, call};
use idempotent_testkit::history::{Kind, Line};

#[derive(Debug)]
pub(super) enum Fail {
    Transient,
    Permanent,
    Rejected,
}

impl Fail {
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self, Self::Permanent)
    }
}

impl From<Rejection> for Fail {
    fn from(_: Rejection) -> Self {
        Self::Rejected
    }
}

/// A codec for the bytes of a text. An empty text has no bytes, and is still stored.
#[derive(Debug)]
pub(super) struct Text;

impl Codec<String> for Text {
    fn encode(value: &String) -> Result<Option<Vec<u8>>, CodecError> {
        Ok(Some(value.clone().into_bytes()))
    }

    fn decode(bytes: Option<&[u8]>) -> Result<String, CodecError> {
        std::str::from_utf8(bytes.unwrap_or(b"no bytes were kept"))
            .map(str::to_owned)
            .map_err(CodecError::decode::<String>)
    }
}

#[derive(Clone)]
pub(super) struct Job {
    pub(super) world: Arc<World>,
    pub(super) worker: Worker,
    pub(super) scope: &'static str,
    pub(super) key: u64,
    pub(super) payload: u64,
    pub(super) run: Run,
    /// The lease in a batch. Each item has its own lease, and a panic would affect all items.
    pub(super) batched: Option<Lease>,
}

impl Job {
    /// Returns a job with the key that all share, and with the same duration.
    pub(super) fn inner(&self) -> Self {
        let Run { before_us, after_us, .. } = self.run;
        let (run, batched) = (Run { before_us, after_us, ..Run::default() }, None);
        Self { scope: INNER, key: 0, payload: 0, run, batched, ..self.clone() }
    }
}

const INJECTED: &str = "injected panic";

pub(super) fn is_injected(panic: &Box<dyn Any + Send>) -> bool {
    panic.downcast_ref::<&str>() == Some(&INJECTED)
}

/// A guard that records the end of a handler, even if it was dropped.
struct Ended {
    world: Arc<World>,
    worker: u32,
    key: u128,
    fencing: Option<FencingToken>,
    how: How,
    /// The number of handlers in a turn, if this is one of them.
    in_turn: Option<Arc<AtomicU64>>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(in_turn) = &self.in_turn {
            in_turn.fetch_sub(1, Ordering::Relaxed);
        }
        let how = if std::thread::panicking() { How::Panicked } else { self.how };
        let (key, fencing) = (self.key, self.fencing);
        self.world.recorder.record(self.worker, What::HandlerEnd { key, fencing, how });
    }
}

/// Runs the handler. The future is boxed, since it may contain another one of its type.
pub(super) fn handle(job: Job) -> Pin<Box<dyn Future<Output = Result<String, Fail>> + Send>> {
    Box::pin(async move {
        let Job { world, worker, scope, key, payload, run, batched } = &job;
        let alone = batched.is_none();
        let lease = batched.clone().or_else(Lease::current);
        let fencing = lease.as_ref().map(Lease::fencing);
        let hash = hash(scope, *key);
        // Neither a batch nor a nested run has a turn.
        let limit = world.plan.workers[worker.place].turns;
        let in_turn = (alone && *scope == ORDERS && run.batch == 0 && limit > 0).then(|| worker.in_turn.clone());
        let running = in_turn.as_ref().map_or(0, |in_turn| in_turn.fetch_add(1, Ordering::Relaxed) + 1);
        let how = How::Dropped;
        let mut end = Ended { world: world.clone(), worker: worker.id, key: hash, fencing, how, in_turn };
        assert!(running <= limit, "{running} handlers run with {limit} turns");
        let calm = world.is_calm();
        let pause = async |micros: u64| {
            // In calm times, only short waits.
            let micros = if calm { micros.min(1_000) } else { micros };
            if micros > 0 {
                worker.clock.sleep(Duration::from_micros(micros)).await;
            }
        };
        let mut fail = |fail| {
            end.how = How::Failed;
            Err(fail)
        };
        pause(run.before_us).await;
        // A polite handler checks its lease before the irreversible step.
        let believes = lease.as_ref().is_some_and(|lease| !lease.is_lost());
        if run.polite && !believes && lease.is_some() {
            return fail(Fail::Transient);
        }
        if !world.touch(worker, scope, *key, fencing, believes) {
            return fail(Fail::Transient);
        }
        pause(run.after_us).await;
        if run.inner && alone && *scope == ORDERS {
            let handler =
                Handler::<DefaultReply, Text, _, _>::new(|| handle(job.inner())).permanent(Fail::is_permanent);
            if worker.executor.run(call(INNER, 0, None), handler).await.is_err() {
                return fail(Fail::Transient);
            }
        }
        match run.end {
            End::Fails if !calm => return fail(Fail::Transient),
            End::FailsForGood if !calm => return fail(Fail::Permanent),
            End::Panics if alone && !calm => {
                end.how = How::Panicked;
                // Without the output of the panic hook.
                resume_unwind(Box::new(INJECTED));
            }
            _ => {}
        }
        end.how = How::Well;
        Ok(match run.end {
            End::Empty => String::new(),
            _ => format!("{payload} of {scope}/{key} under {fencing:?} by {}", worker.id),
        })
    })
}

/// Handles the items one after the other.
pub(super) async fn handle_all(items: Vec<BatchItem<Job>>) -> Vec<Result<String, Fail>> {
    let mut answers = Vec::new();
    for BatchItem { item, lease, .. } in items {
        answers.push(handle(Job { batched: Some(lease), ..item }).await);
    }
    answers
}

impl World {
    /// Performs the irreversible step. Returns false if the resource rejects it.
    pub(super) fn touch(
        &self,
        worker: &Worker,
        scope: &'static str,
        key: u64,
        fencing: Option<FencingToken>,
        believes: bool,
    ) -> bool {
        let (hash, name) = (hash(scope, key), real(scope, key));
        let token = fencing.and_then(|fencing| self.recorder.owner(&name, fencing));
        let accepted = self.write(hash, fencing);
        if accepted {
            lock(&self.done).entry(name.as_str().to_owned()).or_default().extend(token);
        }
        self.recorder.record(worker.id, What::Effect { key: hash, fencing, accepted, believes });
        let event = if accepted { Kind::Effect } else { Kind::EffectRefused };
        let (key, fence) = (Some(name.as_str().to_owned()), fencing.map(|fencing| fencing.0));
        self.recorder.line(worker.id, |line| Some(Line { event, key, token, fence, ..line }));
        accepted
    }

    /// Writes to the resource. A fenced resource rejects fencing tokens lower than the highest it has seen.
    fn write(&self, key: u128, fencing: Option<FencingToken>) -> bool {
        let Some(fencing) = fencing else { return true };
        let mut highest = lock(&self.resource);
        let highest = highest.entry(key).or_default();
        if self.plan.fenced && fencing.0 < *highest {
            return false;
        }
        *highest = fencing.0.max(*highest);
        true
    }
}

//! What is done once: a handler with moods, and the resource it writes to.
use std::any::Any;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;

use idempotent::{Auto, BatchItem, Fencing, Handler, Json, Lease, Rejection};

use crate::dice::Dice;
use crate::history::{How, What};
use crate::world::{Worker, World, call, key_hash};

#[derive(Debug)]
pub enum Fail {
    Transient,
    Permanent,
    Rejected,
}

impl Fail {
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Permanent)
    }
}

impl From<Rejection> for Fail {
    fn from(_: Rejection) -> Self {
        Self::Rejected
    }
}

#[derive(Clone)]
pub struct Job {
    pub world: Arc<World>,
    pub worker: Worker,
    pub scope: &'static str,
    pub key: u64,
    pub payload: u64,
    pub dice: Dice,
    /// In a batch: each item has its own, and a panic would be that of all.
    pub batched: Option<Lease>,
}

const INJECTED: &str = "injected panic";

pub fn is_injected(panic: &Box<dyn Any + Send>) -> bool {
    panic.downcast_ref::<&str>() == Some(&INJECTED)
}

/// Writes down how a handler ended, also if it was dropped.
struct End {
    world: Arc<World>,
    worker: u32,
    key: u128,
    fencing: Option<Fencing>,
    how: How,
}

impl Drop for End {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { How::Panicked } else { self.how };
        let (key, fencing) = (self.key, self.fencing);
        self.world.recorder.record(self.worker, What::HandlerEnd { key, fencing, how });
    }
}

/// Boxed, since it may hold another of its kind.
pub fn handle(job: Job) -> Pin<Box<dyn Future<Output = Result<String, Fail>> + Send>> {
    Box::pin(async move {
        let Job { world, worker, scope, key, payload, mut dice, batched } = job;
        let alone = batched.is_none();
        let (plan, lease) = (&world.plan, batched.or_else(Lease::current));
        let fencing = lease.as_ref().map(Lease::fencing);
        let hash = key_hash(scope, key);
        let mut end = End { world: world.clone(), worker: worker.id, key: hash, fencing, how: How::Dropped };
        let calm = world.clock.elapsed() >= plan.calm;
        let pause = async |dice: &mut Dice| {
            let part = match dice.range(0, 99) {
                roll if calm || roll >= plan.slow => dice.pick(&[0.0, 0.01, 0.2]),
                0 => 25.0,
                _ => dice.pick(&[0.5, 0.95, 1.2, 3.0]),
            };
            if part > 0.0 {
                worker.clock.sleep(plan.lease.mul_f64(part * dice.range(50, 100) as f64 / 100.0)).await;
            }
        };
        let mut fail = |how, fail| {
            end.how = how;
            Err(fail)
        };
        pause(&mut dice).await;
        // A polite handler asks before the step that cannot be undone.
        let believes = lease.as_ref().is_some_and(|lease| !lease.is_lost());
        if !believes && lease.is_some() && dice.percent(50) {
            return fail(How::Failed, Fail::Transient);
        }
        let accepted = world.write(hash, fencing);
        world.recorder.record(worker.id, What::Effect { key: hash, fencing, accepted, believes });
        if !accepted {
            return fail(How::Failed, Fail::Transient);
        }
        pause(&mut dice).await;
        if plan.nested && alone && scope == "orders" && dice.percent(50) {
            let inner = Job {
                world: world.clone(),
                worker: worker.clone(),
                scope: "inner",
                key: 0,
                payload: 0,
                dice: Dice::new(dice.roll()),
                batched: None,
            };
            let handler = Handler::<Auto, Json, _, _>::new(|| handle(inner)).permanent(Fail::is_permanent);
            if worker.executor.run(call("inner", 0, None), handler).await.is_err() {
                return fail(How::Failed, Fail::Transient);
            }
        }
        match dice.range(0, 99) {
            _ if calm => {}
            roll if roll < plan.fails => return fail(How::Failed, Fail::Transient),
            roll if roll < plan.fails + plan.permanent => return fail(How::Failed, Fail::Permanent),
            roll if alone && roll < plan.fails + plan.permanent + plan.panics => {
                end.how = How::Panicked;
                // Without the hook's noise.
                resume_unwind(Box::new(INJECTED));
            }
            _ => {}
        }
        end.how = How::Ok;
        Ok(format!("{payload} of {scope}/{key} under {fencing:?} by {}: {}", worker.id, dice.roll()))
    })
}

/// One after the other.
pub async fn handle_all(items: Vec<BatchItem<Job>>) -> Vec<Result<String, Fail>> {
    let mut answers = Vec::new();
    for BatchItem { item, lease, .. } in items {
        answers.push(handle(Job { batched: Some(lease), ..item }).await);
    }
    answers
}

impl World {
    /// What the resource says; the one that is fenced refuses numbers smaller than it has seen.
    fn write(&self, key: u128, fencing: Option<Fencing>) -> bool {
        let Some(fencing) = fencing else { return true };
        let mut highest = self.resource.lock().unwrap();
        let highest = highest.entry(key).or_default();
        if self.plan.fenced && fencing.0 < *highest {
            return false;
        }
        *highest = fencing.0.max(*highest);
        true
    }
}

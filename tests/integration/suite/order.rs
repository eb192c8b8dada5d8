//! Calls that come after others: `after = …` and `Call::after`, `sequence = …` and `Call::sequence`, over memory, SQLite, and private servers of PostgreSQL and MariaDB.

mod attribute;
mod broken;
mod chain;
mod crossed;
mod gaps;
mod marker;
mod missing_capability;
mod probe;
mod sequence;
mod skipping;
mod unanswered;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Job, PlainHandler, Worker, World, batch_of, id, key_of, ms, retry_after, secs};
use idempotent::observe::RunInfo;
use idempotent::ordering::OnBrokenOrder;
use idempotent::store::StateKind;
use idempotent::{Call, Event, Observer, Outcome, Policy, Rejection};

/// The call of `key`, which comes after that of `before`.
fn after(key: &str, before: &str) -> Call {
    Call::new(id(key)).after(before)
}

/// Delivers a message once, and returns the outcome.
async fn deliver(worker: &Worker, key: &str, before: &str, job: &Arc<Job>) -> Outcome {
    worker.deliver_call(after(key, before), job).await.0
}

#[track_caller]
fn assert_waiting(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Waiting { .. }) && outcome.is_deferral(), "{outcome:?}");
}

#[track_caller]
fn assert_held(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Held { .. }) && outcome.is_deferral(), "{outcome:?}");
}

/// The alerts about broken orders: the cause, and whether the handler ran.
#[derive(Clone, Debug, Default)]
struct Alerts(Arc<Mutex<Vec<(String, bool)>>>);

impl Alerts {
    fn take(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for Alerts {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        if let Event::OrderBroken { why, skipped } = event {
            self.0.lock().unwrap().push((why.to_string(), *skipped));
        }
    }
}

/// Creates a worker with this policy, and a record of its alerts.
fn alerting(world: &World, then: OnBrokenOrder) -> (Worker, Alerts) {
    let alerts = Alerts::default();
    let policy = Policy::new().on_broken_order(then).max_retries(0);
    let worker = world.worker_by("a", policy, |builder| builder.observer(alerts.clone()));
    (worker, alerts)
}

/// Delivers a batch, and returns the names of the outcomes.
async fn deliver_batch(worker: &Worker, calls: Vec<Call>) -> Vec<&'static str> {
    let items = calls.into_iter().map(|call| (call, ())).collect();
    let answers = worker.executor.run_batch(items, batch_of(|()| Ok(()))).await;
    answers.iter().map(|answer| answer.outcome.name()).collect()
}

async fn state(world: &World, key: &str) -> StateKind {
    world.record(key).await.map_or(StateKind::Absent, |record| record.state.kind())
}

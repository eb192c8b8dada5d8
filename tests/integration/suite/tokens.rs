//! Issued tokens: each is good for one call that succeeds, of the caller it was issued to.

mod batches;
mod issue;
mod spend;
#[cfg(feature = "stores")]
mod stores;

use std::sync::Arc;

use crate::common::{AppError, End, Job, PlainHandler, Worker, World, assert_in_flight, ms, secs};
use idempotent::key::DisplayKey;
use idempotent::ordering::OnBrokenOrder;
use idempotent::store::StateKind;
use idempotent::{
    Call, Executor, Identity, OnStoreError, Outcome, Policy, Rejection, Scene, Store, StoreErrorKind, Token, Tokens,
};
use idempotent_testkit::{FOREVER, StoreOperation};

const TTL: std::time::Duration = Tokens::TTL;

/// A worker that issues tokens of the default kind, by this policy of its requests.
fn desk(world: &World, name: &str, policy: Policy) -> (Worker, Tokens) {
    let worker = world.worker_by(name, Policy::new(), |builder| builder.policy(Scene::Rest, policy.jitter(0)));
    let tokens = Tokens::new(&worker.executor);
    (worker, tokens)
}

/// Spends it in a task of its own, begun by the time this returns.
async fn begun(worker: &Worker, call: Call, job: &Arc<Job>) -> tokio::task::JoinHandle<Outcome> {
    let (worker, clock, job) = (worker.clone(), worker.clock.clone(), job.clone());
    let task = tokio::spawn(async move { worker.deliver_call(call, &job).await.0 });
    clock.settle().await;
    task
}

#[track_caller]
fn rejection<T: std::fmt::Debug>(answer: Result<T, AppError>) -> Rejection {
    match answer {
        Err(AppError::Idempotent(rejection)) => rejection,
        other => panic!("not rejected: {other:?}"),
    }
}

/// Returns the number of store calls that may leave a record.
fn writes(world: &World) -> usize {
    StoreOperation::WRITES.iter().map(|verb| world.asked(*verb).len()).sum()
}

//! The attribute at run time: every shape of function it takes, and what each argument does.

mod answers;
mod batches;
mod executors;
mod functions;
mod identity;
mod methods;
mod other_attributes;
mod policies;
mod scenes;
mod strategies;
mod unusual_forms;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::common::{AppError, Worker, World, assert_in_flight, ms, secs};
use async_trait::async_trait;
use idempotent::reply::{CodecError, HandlerOutcome, RejectStrategy, ReplyStrategy, ResponseShape};
use idempotent::store::StateKind;
use idempotent::{
    Clock, Codec, Disposition, Executor, Identity, KeyError, KeyPart, Lease, MemoryStore, Outcome, Policy, Rejection,
    Scene, Store, idempotent,
};
use idempotent_testkit::StoreOperation;
use serde::{Deserialize, Serialize};
use tracing::instrument;

thread_local! {
    /// Each test has a thread and a runtime of its own.
    static RUNS: Cell<u32> = const { Cell::new(0) };
}

/// The key of handlers that tests call once or for one key only.
const ONE: u8 = 1;

fn ran() -> u32 {
    RUNS.set(RUNS.get() + 1);
    RUNS.get()
}

#[track_caller]
fn assert_runs(wanted: u32) {
    assert_eq!(RUNS.take(), wanted, "runs of the handler");
}

/// Calls twice: the same answer, and one run.
async fn once<T: PartialEq + std::fmt::Debug, F: Future<Output = T>>(wanted: T, call: impl Fn() -> F) {
    for place in ["run", "replay"] {
        assert_eq!(call().await, wanted, "{place}");
    }
    assert_runs(1);
}

async fn outcome_of<F: Future>(call: F) -> Outcome {
    Outcome::capture(call).await.1.unwrap()
}

fn executor() -> Executor {
    Executor::new(MemoryStore::new())
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Order {
    id: String,
    amount: u64,
}

fn order(id: &str) -> Order {
    Order { id: id.into(), amount: 41 }
}

/// A state as web frameworks have them.
#[derive(Clone)]
struct App {
    idem: Executor,
}

impl AsRef<Executor> for App {
    fn as_ref(&self) -> &Executor {
        &self.idem
    }
}

/// Across threads, so the count is not the thread's.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_64_concurrent_duplicates_runs() {
    #[derive(Default)]
    struct Gate {
        runs: AtomicU32,
        refused: AtomicU32,
        open: tokio::sync::Notify,
    }
    #[idempotent(key = const { ONE }, with = e)]
    async fn hold(e: Executor, gate: Arc<Gate>) -> Result<u32, Rejection> {
        gate.open.notified().await; // opened by the 63rd duplicate
        Ok(gate.runs.fetch_add(1, SeqCst) + 1)
    }
    let (e, gate) = (executor(), Arc::new(Gate::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (e, gate) = (e.clone(), gate.clone());
        tasks.spawn(async move {
            let answer = hold(e, gate.clone()).await;
            if matches!(answer, Err(Rejection::InFlight { .. })) && gate.refused.fetch_add(1, SeqCst) == 62 {
                gate.open.notify_one();
            }
            answer
        });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Ok(1))).count(), 1);
    assert_eq!(hold(e, gate.clone()).await.unwrap(), 1);
    assert_eq!(gate.runs.load(SeqCst), 1);
}

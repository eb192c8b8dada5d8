//! Steps of runs, on a virtual clock: replays, crashes, order, steps that may be begun once, compensation, limits.
mod cancelled;
mod compensation;
mod limits;
mod own_transaction;
mod parked;
mod replayed;
mod step_records;

use std::sync::{Arc, Mutex};

use crate::common::{AppError, PlainHandler, Worker, World, id, secs};
use idempotent::store::StateKind;
use idempotent::{Call, Executor, Outcome, Policy, step};

/// The events in order.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<Vec<String>>>);

impl Effects {
    fn happen(&self, what: &str) {
        self.0.lock().unwrap().push(what.to_owned());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// A step that happens, and answers with its name's length.
    async fn does(&self, name: &str) -> Result<usize, AppError> {
        let (effects, what) = (self.clone(), name.to_owned());
        step(name, || async move {
            effects.happen(&what);
            Ok(what.len())
        })
        .await
    }

    async fn does_and_undoes(&self, name: &str) -> Result<usize, AppError> {
        let (effects, undo, what) = (self.clone(), self.clone(), name.to_owned());
        let undone = format!("undo {name}");
        step(name, || async move {
            effects.happen(&what);
            Ok(what.len())
        })
        .compensate(move || async move {
            undo.happen(&undone);
            Ok::<(), AppError>(())
        })
        .await
    }
}

async fn run<F, Fut>(worker: &Worker, handler: F) -> (Outcome, Result<usize, AppError>)
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<usize, AppError>>,
{
    run_on(&worker.executor, handler).await
}

async fn run_on<F, Fut>(executor: &Executor, handler: F) -> (Outcome, Result<usize, AppError>)
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<usize, AppError>>,
{
    let permanent = |error: &AppError| matches!(error, AppError::NoArticle);
    let handler = PlainHandler::new(handler).permanent(permanent);
    let (answer, outcome) = Outcome::capture(executor.run(Call::new(id("k")), handler)).await;
    (outcome.unwrap(), answer)
}

/// A run in a task of its own that dies where its handler waits.
async fn dies<F, Fut>(world: &World, policy: Policy, handler: F)
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = Result<usize, AppError>> + Send,
{
    let doomed = world.worker("doomed", policy);
    let executor = doomed.executor.clone();
    let task = tokio::spawn(async move { run_on(&executor, handler).await });
    world.clock.settle().await;
    doomed.kill(task).await;
    world.clock.advance(secs(31)).await;
}

async fn error_of(world: &World) -> String {
    match world.record("k").await.unwrap().state {
        idempotent::store::State::Dead { error } | idempotent::store::State::Failed { error } => error.to_string(),
        other => panic!("{other:?}"),
    }
}

async fn kind(world: &World) -> StateKind {
    world.record("k").await.map_or(StateKind::Absent, |record| record.state.kind())
}

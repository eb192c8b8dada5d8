//! An order in six steps, whose worker fails or dies in the third.
use std::future::pending;
use std::sync::{Arc, Mutex};

use crate::common::{AppError, Worker, World, id, secs};
use idempotent::reply::DefaultReply;
use idempotent::steps::step_key;
use idempotent::{Call, Handler, Json, Outcome, Policy, step};

on_all_stores! {
    a_retry_of_an_order_that_failed_in_its_third_step_runs_from_there
    an_unrecorded_step_of_a_dead_worker_runs_again_with_the_same_key
}

const SIX: [&str; 6] = ["check_stock", "lock_stock", "insert_order", "charge", "set_status", "close_order"];

#[derive(Clone, Copy, PartialEq)]
enum Third {
    Works,
    /// Before its effect.
    Fails,
    /// The process dies after the effect, before the step is recorded.
    Dies,
}

/// The external effects in order: the step, and the key that the external system received.
#[derive(Clone, Default)]
struct Outside(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Outside {
    /// Its result is another one each time that it happens.
    async fn does(&self, name: &'static str, how: Third) -> Result<usize, AppError> {
        let effect = || async {
            if how == Third::Fails {
                return Err(AppError::NoStock);
            }
            let happened = {
                let mut happened = self.0.lock().unwrap();
                happened.push((name, step_key(name)?.to_string()));
                happened.len()
            };
            if how == Third::Dies {
                pending::<()>().await;
            }
            Ok(happened)
        };
        step(name, effect).await
    }

    /// All results of a run together.
    async fn order(&self, third: Third) -> Result<usize, AppError> {
        let mut sum = 0;
        for (at, name) in SIX.into_iter().enumerate() {
            sum += self.does(name, if at == 2 { third } else { Third::Works }).await?;
        }
        Ok(sum)
    }

    fn names(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().iter().map(|(name, _)| *name).collect()
    }
}

async fn deliver(worker: &Worker, outside: &Outside, third: Third) -> (Outcome, Result<usize, AppError>) {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| outside.order(third));
    let (answer, outcome) = Outcome::capture(worker.executor.run(Call::new(id("k")), handler)).await;
    (outcome.unwrap(), answer)
}

async fn a_retry_of_an_order_that_failed_in_its_third_step_runs_from_there(world: World) {
    let (worker, outside) = (world.worker("a", Policy::new()), Outside::default());
    let (outcome, _) = deliver(&worker, &outside, Third::Fails).await;
    assert!(matches!(outcome, Outcome::Released { .. }), "{outcome:?}");
    assert_eq!(outside.names(), SIX[..2]);
    let (outcome, answer) = deliver(&worker, &outside, Third::Works).await;
    assert_eq!(outcome, Outcome::Ran);
    assert_eq!(outside.names(), SIX, "each once");
    assert_eq!(answer.unwrap(), 1 + 2 + 3 + 4 + 5 + 6, "by the results that the first two had");
    assert_eq!(deliver(&worker, &outside, Third::Works).await.0, Outcome::Replayed);
    assert_eq!(outside.names(), SIX);
}

async fn an_unrecorded_step_of_a_dead_worker_runs_again_with_the_same_key(world: World) {
    let (doomed, other, outside) =
        (world.worker("doomed", Policy::new()), world.worker("other", Policy::new()), Outside::default());
    let run = tokio::spawn({
        let (worker, outside) = (doomed.clone(), outside.clone());
        async move { deliver(&worker, &outside, Third::Dies).await }
    });
    world.clock.settle().await;
    assert_eq!(outside.names(), SIX[..3]);
    doomed.kill(run).await;
    world.clock.advance(secs(31)).await;
    let (outcome, answer) = deliver(&other, &outside, Third::Works).await;
    assert_eq!(outcome, Outcome::Ran);
    assert_eq!(outside.names(), [&SIX[..3], &SIX[2..]].concat(), "the third twice, and no other");
    assert_eq!(answer.unwrap(), 1 + 2 + 4 + 5 + 6 + 7, "and its second result counts");
    let happened = outside.0.lock().unwrap();
    assert_eq!(happened[2], happened[3], "its far side can tell that it is the same");
}

//! Limits of steps, at their exact values.
use idempotent::steps::{MAX_STEP_BYTES, MAX_STEP_NAME, MAX_STEPS, MAX_STEPS_BYTES, StepError};
use idempotent::{OnLeaseLost, Policy, Rejection, step};
use idempotent_testkit::{FOREVER, StoreOperation};

use super::*;
use crate::common::{PlainHandler, Worker, ms, on_memory};

/// Returns the error of a step.
#[track_caller]
fn error(answer: Result<usize, AppError>) -> StepError {
    match answer {
        Err(AppError::Idempotent(Rejection::Journal(error))) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_name_of_a_step_has_1_to_200_bytes() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        for (bytes, is_valid) in [(0, false), (1, true), (MAX_STEP_NAME, true), (MAX_STEP_NAME + 1, false)] {
            let name = "n".repeat(bytes);
            let call = Call::new(id(&bytes.to_string()));
            let handler = PlainHandler::new(|| async { step(&name, || async { Ok::<usize, AppError>(1) }).await });
            let answer = worker.executor.run(call, handler).await;
            match is_valid {
                true => assert_eq!(answer.unwrap(), 1),
                false => {
                    let error = error(answer);
                    assert!(matches!(error, StepError::Name { bytes: n, max: MAX_STEP_NAME } if n == bytes), "{error}");
                }
            }
        }
    });
}

/// Runs a step whose encoded result has this number of bytes.
async fn sized(name: &str, bytes: usize) -> Result<usize, AppError> {
    // The result is a text in quotes.
    step(name, || async { Ok::<_, AppError>("x".repeat(bytes - 2)) }).await.map(|text| text.len())
}

#[test]
fn the_result_of_a_step_has_at_most_1_mib() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let (_, answer) = run(&worker, || async { sized("a", MAX_STEP_BYTES).await }).await;
        assert_eq!(answer.unwrap(), MAX_STEP_BYTES - 2);
        let worker = world.worker("b", Policy::new());
        let handler = PlainHandler::new(|| sized("a", MAX_STEP_BYTES + 1));
        let error = error(worker.executor.run(Call::new(id("other")), handler).await);
        assert!(matches!(error, StepError::TooLarge { bytes, of: "one step", .. } if bytes == MAX_STEP_BYTES + 1));
    });
}

#[test]
fn the_results_of_all_steps_have_at_most_8_mib() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let (_, answer) = run(&worker, || async {
            for number in 0..MAX_STEPS_BYTES / MAX_STEP_BYTES {
                sized(&number.to_string(), MAX_STEP_BYTES).await?;
            }
            step("one more", || async { Ok::<usize, AppError>(1) }).await
        })
        .await;
        let error = error(answer);
        let StepError::TooLarge { step, bytes, max, .. } = error else { panic!("{error}") };
        assert_eq!((&*step, bytes, max), ("one more", MAX_STEPS_BYTES + 1, MAX_STEPS_BYTES));
    });
}

#[test]
fn a_run_has_at_most_1_000_steps() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let (_, answer) = run(&worker, || async {
            for number in 0..MAX_STEPS {
                step(&number.to_string(), || async { Ok::<usize, AppError>(1) }).await?;
            }
            step("one more", || async { Ok::<usize, AppError>(1) }).await
        })
        .await;
        let error = error(answer);
        assert!(matches!(&error, StepError::TooMany { step, max: MAX_STEPS } if &**step == "one more"), "{error}");
    });
}

#[test]
fn a_step_that_was_started_at_most_once_runs_again_if_that_no_longer_applies() {
    on_memory(async |world| {
        dies(&world, Policy::new(), || async {
            step("charge", std::future::pending::<Result<usize, AppError>>).at_most_once().await
        })
        .await;
        let (worker, effects) = (world.worker("b", Policy::new()), Effects::default());
        assert_eq!(run(&worker, || effects.does("charge")).await.0, Outcome::Ran);
        assert_eq!(effects.take(), ["charge"]);
    });
}

#[test]
fn a_step_in_the_transaction_of_a_run_without_one_is_refused() {
    on_memory(async |world| {
        let (worker, effects) = (world.worker("a", Policy::new()), Effects::default());
        let (_, answer) = run(&worker, || async {
            step("a", || async {
                effects.happen("a");
                Ok::<usize, AppError>(1)
            })
            .in_transaction()
            .await
        })
        .await;
        let error = error(answer);
        assert!(matches!(&error, StepError::NoTransaction { why, .. } if why.contains("step_in")), "{error}");
        assert!(effects.take().is_empty());
    });
}

/// Starts a run with one step, and returns it.
async fn begin(worker: &Worker, effects: &Effects, after: std::time::Duration) -> tokio::task::JoinHandle<Outcome> {
    let (doing, effects) = (worker.clone(), effects.clone());
    let task = tokio::spawn(async move {
        let clock = doing.clock.clone();
        let handler = || async {
            idempotent::Clock::sleep_until(&clock, idempotent::Clock::now(&clock) + after).await;
            effects.does("a").await
        };
        run(&doing, handler).await.0
    });
    worker.clock.settle().await;
    task
}

#[test]
fn a_step_does_not_run_after_the_lease_is_lost() {
    on_memory(async |world| {
        let effects = Effects::default();
        let worker = world.worker("a", Policy::new().on_lease_lost(OnLeaseLost::Finish));
        worker.store.fail_before(StoreOperation::Renew, FOREVER);
        let task = begin(&worker, &effects, secs(31)).await;
        world.clock.advance(secs(31)).await;
        world.clock.advance(secs(1)).await;
        assert!(!matches!(task.await.unwrap(), Outcome::Ran));
        assert!(effects.take().is_empty());
    });
}

#[test]
fn each_try_to_read_the_steps_takes_a_third_of_the_remaining_lease() {
    on_memory(async |world| {
        let (worker, effects) = (world.worker("a", Policy::new().lease(secs(30))), Effects::default());
        worker.store.hang(StoreOperation::Steps, 1);
        let task = begin(&worker, &effects, ms(0)).await;
        // The guard is a tenth of the lease before its end.
        world.clock.advance(ms(9_009)).await;
        assert!(!task.is_finished());
        world.clock.advance(ms(1)).await;
        assert_eq!(task.await.unwrap(), Outcome::Ran);
    });
}

#[test]
fn steps_that_cannot_be_read_are_given_up_while_the_lease_lasts() {
    on_memory(async |world| {
        let (worker, effects) = (world.worker("a", Policy::new().lease(secs(30))), Effects::default());
        worker.store.fail_before(StoreOperation::Renew, FOREVER);
        worker.store.fail_before(StoreOperation::Steps, FOREVER);
        let task = begin(&worker, &effects, ms(0)).await;
        world.clock.advance(ms(26_900)).await;
        assert!(task.is_finished());
        let outcome = task.await.unwrap();
        assert!(matches!(outcome, Outcome::Released { .. }), "{outcome:?}");
    });
}

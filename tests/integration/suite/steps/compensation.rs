//! Compensation of steps after a permanent failure.
use std::future::pending;

use idempotent::steps::StepError;
use idempotent::{Lease, Outcome, Policy, Rejection, step};

use super::{Effects, dies, error_of, run};
use crate::common::{AppError, Job, World, assert_in_flight, key_of, ms, secs};

on_both_stores! {
    a_run_that_fails_for_good_takes_its_steps_back_in_reverse
    a_run_out_of_attempts_takes_its_steps_back
    a_run_that_may_be_retried_takes_nothing_back
    a_crash_while_steps_are_taken_back_is_gone_on_with_by_the_next_run
    a_compensation_that_fails_is_tried_again_by_the_next_run
    a_last_attempt_that_is_deferred_takes_nothing_back
    a_compensation_has_the_lease_of_its_run_and_the_runs_inside_of_it_do_not_settle_the_delivery
}

async fn a_run_that_fails_for_good_takes_its_steps_back_in_reverse(world: World) {
    let (worker, effects) = (world.worker("a", Policy::new()), Effects::default());
    let (outcome, _) = run(&worker, || async {
        effects.does_and_undoes("a").await?;
        effects.does("without").await?;
        effects.does_and_undoes("b").await?;
        Err(AppError::NoArticle)
    })
    .await;
    assert_eq!(outcome, Outcome::Failed);
    assert_eq!(effects.take(), ["a", "without", "b", "undo b", "undo a"]);
    assert!(error_of(&world).await.starts_with("an error of type "), "and the handler's error stands");
}

async fn a_run_out_of_attempts_takes_its_steps_back(world: World) {
    let (worker, effects) = (world.worker("a", Policy::new().max_retries(1)), Effects::default());
    let handler = || async {
        effects.does_and_undoes("a").await?;
        Err(AppError::NoStock)
    };
    assert!(matches!(run(&worker, handler).await.0, Outcome::Released { .. }));
    assert_eq!(effects.take(), ["a"]);
    assert!(matches!(run(&worker, handler).await.0, Outcome::Dead { .. }));
    assert_eq!(effects.take(), ["undo a"], "replayed, and taken back");
}

async fn a_run_that_may_be_retried_takes_nothing_back(world: World) {
    let (worker, effects) = (world.worker("a", Policy::new()), Effects::default());
    let panicked = tokio::spawn({
        let worker = worker.clone();
        let effects = effects.clone();
        async move {
            run(&worker, || async move {
                effects.does_and_undoes("a").await?;
                panic!("as told")
            })
            .await
        }
    });
    assert!(panicked.await.unwrap_err().is_panic());
    assert_eq!(effects.take(), ["a"]);
    assert_eq!(run(&worker, || effects.does_and_undoes("a")).await.0, Outcome::Ran);
    assert!(effects.take().is_empty());
}

async fn a_crash_while_steps_are_taken_back_is_gone_on_with_by_the_next_run(world: World) {
    let effects = Effects::default();
    let first = effects.clone();
    dies(&world, Policy::new(), move || async move {
        first.does_and_undoes("a").await?;
        let undo = first.clone();
        let happens = first.clone();
        step("b", || async move {
            happens.happen("b");
            Ok::<_, AppError>(())
        })
        .compensate(move || async move {
            undo.happen("undo b, and die");
            pending::<Result<(), AppError>>().await
        })
        .await?;
        first.does_and_undoes("c").await?;
        Err(AppError::NoArticle)
    })
    .await;
    assert_eq!(effects.take(), ["a", "b", "c", "undo c", "undo b, and die"]);
    let worker = world.worker("b", Policy::new());
    let (outcome, answer) = run(&worker, || async {
        effects.does_and_undoes("a").await?;
        effects.does_and_undoes("b").await?;
        effects.does_and_undoes("c").await
    })
    .await;
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Journal(StepError::TakenBack { .. })))));
    assert_eq!(outcome, Outcome::Failed);
    assert_eq!(effects.take(), ["undo b", "undo a"], "what may be half undone, and the rest; nothing is run");
}

async fn a_compensation_that_fails_is_tried_again_by_the_next_run(world: World) {
    let (worker, effects) = (world.worker("a", Policy::new()), Effects::default());
    let handler = async |undoes: bool| {
        effects.does_and_undoes("a").await?;
        let undo = effects.clone();
        step("b", || async { Ok::<_, AppError>(()) })
            .compensate(move || async move {
                undo.happen("try to undo b");
                if undoes { Ok(()) } else { Err(AppError::NoStock) }
            })
            .await?;
        Err(AppError::NoArticle)
    };
    let (outcome, _) = run(&worker, || handler(false)).await;
    assert!(matches!(outcome, Outcome::Released { .. }), "{outcome:?}");
    assert_eq!(effects.take(), ["a", "try to undo b"], "what was done before it is not taken back yet");
    assert_eq!(run(&worker, || handler(true)).await.0, Outcome::Failed);
    assert_eq!(effects.take(), ["try to undo b", "undo a"]);
}

/// A deferral is no attempt.
async fn a_last_attempt_that_is_deferred_takes_nothing_back(world: World) {
    let (worker, effects) = (world.worker("a", Policy::new().max_retries(0)), Effects::default());
    let _held = world.worker("busy", Policy::new()).spawn("inner", &Job::takes(secs(600))).await;
    let handler = async |inner: bool| {
        effects.does_and_undoes("a").await?;
        if inner {
            worker.deliver("inner", &Job::takes(ms(0))).await.1?;
        }
        Ok(0)
    };
    assert_in_flight(&run(&worker, || handler(true)).await.0);
    assert_eq!(effects.take(), ["a"]);
    world.clock.advance(ms(2)).await;
    assert_eq!(run(&worker, || handler(false)).await.0, Outcome::Ran);
    assert!(effects.take().is_empty(), "replayed");
}

async fn a_compensation_has_the_lease_of_its_run_and_the_runs_inside_of_it_do_not_settle_the_delivery(world: World) {
    let worker = world.worker("a", Policy::new());
    let _held = world.worker("busy", Policy::new()).spawn("inner", &Job::takes(secs(600))).await;
    let inner = worker.clone();
    let undo = move || async move {
        assert_eq!(*Lease::current().unwrap().key(), key_of("k"));
        assert_in_flight(&inner.outcome("inner", &Job::takes(ms(0))).await);
        Ok::<(), AppError>(())
    };
    let handler = || async {
        step("a", || async { Ok::<_, AppError>(()) }).compensate(undo).await?;
        Err(AppError::NoArticle)
    };
    assert_eq!(run(&worker, handler).await.0, Outcome::Failed);
}

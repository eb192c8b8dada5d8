//! Runs that another run could only make worse are left to a person.
use std::future::pending;

use idempotent::steps::StepError;
use idempotent::{Outcome, Policy, Rejection, step};

use super::{Effects, dies, error_of, run};
use crate::common::{AppError, World};

on_both_stores! {
    numbers_3_a_step_that_may_be_begun_once_is_not_run_again_after_a_crash
    numbers_3_a_step_that_may_be_begun_once_and_fails_parks_the_run
    other_steps_than_before_park_the_run
    another_order_of_steps_parks_the_run
    a_name_given_twice_parks_the_run
    a_result_that_is_too_large_parks_the_run_and_names_the_limit
}

async fn numbers_3_a_step_that_may_be_begun_once_is_not_run_again_after_a_crash(world: World) {
    let effects = Effects::default();
    let first = effects.clone();
    let charge = move |effects: Effects| async move {
        effects.does_and_undoes("lock_stock").await?;
        let charge = step("charge", || async {
            effects.happen("charge");
            pending::<Result<usize, AppError>>().await
        });
        charge.at_most_once().await
    };
    dies(&world, Policy::new(), move || charge(first)).await;
    assert_eq!(effects.take(), ["lock_stock", "charge"]);
    let worker = world.worker("b", Policy::new());
    let (outcome, answer) = run(&worker, || charge(effects.clone())).await;
    assert!(matches!(outcome, Outcome::Dead { .. }), "{outcome:?}");
    let Err(AppError::Idempotent(Rejection::Journal(StepError::Uncertain { step }))) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(&*step, "charge");
    assert!(effects.take().is_empty(), "neither run nor taken back: nobody knows");
    let said = error_of(&world).await;
    assert!(said.starts_with("parked: step `charge` was started and its result is not known"), "{said}");
    assert!(matches!(run(&worker, || charge(effects.clone())).await.0, Outcome::Dead { .. }));
    assert!(effects.take().is_empty());
}

async fn numbers_3_a_step_that_may_be_begun_once_and_fails_parks_the_run(world: World) {
    let worker = world.worker("a", Policy::new());
    let fails = || async { step("charge", || async { Err(AppError::NoStock) }).at_most_once().await };
    let (outcome, answer) = run(&worker, fails).await;
    assert!(matches!((outcome, answer), (Outcome::Dead { .. }, Err(AppError::NoStock))));
    assert!(error_of(&world).await.starts_with("parked: step `charge`"));
}

/// Returns the parked state after a run whose recorded steps differ from the called ones.
async fn parked_by(world: &World, first: &[&str], second: &[&str]) -> String {
    let (worker, effects) = (world.worker("a", Policy::new()), Effects::default());
    for (names, ends) in [(first, false), (second, true)] {
        let (outcome, answer) = run(&worker, || async {
            for name in names {
                effects.does(name).await?;
            }
            Err(AppError::NoStock)
        })
        .await;
        assert_eq!(matches!(outcome, Outcome::Dead { .. }), ends, "{outcome:?} {answer:?}");
    }
    effects.take().join(" ") + ": " + &error_of(world).await
}

async fn other_steps_than_before_park_the_run(world: World) {
    let said = parked_by(&world, &["a", "b"], &["a", "c"]).await;
    assert!(said.starts_with("a b: parked: step 1 was `b` in an earlier run of this key and is `c` now"), "{said}");
}

async fn another_order_of_steps_parks_the_run(world: World) {
    let said = parked_by(&world, &["a", "b"], &["b", "a"]).await;
    assert!(said.starts_with("a b: parked: step 0 was `a` in an earlier run of this key and is `b` now"), "{said}");
}

async fn a_name_given_twice_parks_the_run(world: World) {
    let (worker, effects) = (world.worker("a", Policy::new()), Effects::default());
    let (outcome, _) = run(&worker, || async {
        effects.does("a").await?;
        effects.does("a").await
    })
    .await;
    assert!(matches!(outcome, Outcome::Dead { .. }));
    assert!(error_of(&world).await.contains("step `a` is called twice in one run"));
    assert_eq!(effects.take(), ["a"]);
}

async fn a_result_that_is_too_large_parks_the_run_and_names_the_limit(world: World) {
    let worker = world.worker("a", Policy::new());
    let (outcome, _) = run(&worker, || async {
        let text: String = step("report", || async { Ok::<_, AppError>("x".repeat(1 << 20)) }).await?;
        Ok(text.len())
    })
    .await;
    assert!(matches!(outcome, Outcome::Dead { .. }));
    let said = error_of(&world).await;
    assert!(said.contains("the result of step `report` has 1048578 bytes, 1048576 are kept for one step"), "{said}");
}

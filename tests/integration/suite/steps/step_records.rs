//! Step records that are lost, late or concurrent.
use std::future::pending;
use std::sync::Arc;

use idempotent::{Outcome, Policy, Rejection, step};
use idempotent_testkit::{FOREVER, StoreOperation};

use super::{Effects, dies, run};
use crate::common::{AppError, World, ms, secs};

on_both_stores! {
    a_step_record_with_a_lost_response_is_stored_once
    a_note_that_never_arrives_fails_the_step
    an_overtaken_run_notes_no_step
    steps_side_by_side_are_replayed_in_any_order_of_ends
}

async fn a_step_record_with_a_lost_response_is_stored_once(world: World) {
    let (worker, effects) = (world.worker("a", Policy::new()), Effects::default());
    worker.store.lose_reply(StoreOperation::Note, 1);
    let (steps, doing) = (effects.clone(), worker.clone());
    let task = tokio::spawn(async move { run(&doing, || async move { steps.does("a").await }).await });
    world.clock.settle().await;
    world.clock.advance(ms(10)).await;
    assert_eq!(task.await.unwrap().0, Outcome::Ran);
    assert_eq!((world.asked(StoreOperation::Note).len(), effects.take()), (2, vec!["a".to_owned()]));
}

async fn a_note_that_never_arrives_fails_the_step(world: World) {
    let (worker, effects) = (world.worker("a", Policy::new()), Effects::default());
    worker.store.fail_before(StoreOperation::Note, FOREVER);
    let (steps, doing) = (effects.clone(), worker.clone());
    let task = tokio::spawn(async move { run(&doing, || async move { steps.does("a").await }).await });
    world.clock.settle().await;
    // The lease is kept alive, and the step is not given up before its guard: the store is asked again all the time.
    world.clock.advance(secs(620)).await;
    let (outcome, _) = task.await.unwrap();
    assert!(matches!(outcome, Outcome::LeaseLost | Outcome::Released { .. }), "{outcome:?}");
    world.clock.advance(secs(31)).await;
    let again = world.worker("b", Policy::new());
    assert_eq!(run(&again, || effects.does("a")).await.0, Outcome::Ran);
    assert_eq!(effects.take(), ["a", "a"], "what is not noted is run again");
}

async fn an_overtaken_run_notes_no_step(world: World) {
    let effects = Effects::default();
    let policy = Policy::new().on_lease_lost(idempotent::OnLeaseLost::Finish);
    let executor = world.worker("finishes", policy);
    executor.store.fail_before(StoreOperation::Renew, FOREVER);
    let (gate, steps) = (Arc::new(tokio::sync::Notify::new()), effects.clone());
    let open = gate.clone();
    let task = tokio::spawn(async move {
        run(&executor, || async move {
            gate.notified().await;
            steps.does("late").await
        })
        .await
    });
    world.clock.settle().await;
    world.clock.advance(secs(31)).await;
    let next = world.worker("b", Policy::new());
    assert_eq!(run(&next, || effects.does("a")).await.0, Outcome::Ran);
    open.notify_one();
    world.clock.advance(secs(31)).await;
    let (outcome, answer) = task.await.unwrap();
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::LeaseLost))), "{answer:?}");
    assert_eq!((outcome, effects.take()), (Outcome::LeaseLost, vec!["a".to_owned()]));
}

async fn steps_side_by_side_are_replayed_in_any_order_of_ends(world: World) {
    let effects = Effects::default();
    let first = effects.clone();
    dies(&world, Policy::new(), move || async move {
        let never = step("a", pending::<Result<usize, AppError>>);
        let (a, b) = futures_util::future::join(never.into_future(), first.does("b")).await;
        Ok(a? + b?)
    })
    .await;
    let worker = world.worker("b", Policy::new());
    let (outcome, answer) = run(&worker, || async {
        let (a, b) = futures_util::future::join(effects.does("a"), effects.does("b")).await;
        Ok(a? + b?)
    })
    .await;
    assert_eq!((outcome, answer.unwrap()), (Outcome::Ran, 2));
    assert_eq!(effects.take(), ["b", "a"]);
}

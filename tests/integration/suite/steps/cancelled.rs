//! Runs with steps whose call is dropped, before and after their handler starts.
use std::future::pending;

use idempotent::{Lease, Outcome, Policy};
use idempotent_testkit::{StoreCall, StoreOperation};

use super::{Effects, dies, run};
use crate::common::{World, secs};

on_both_stores! {
    a_dropped_run_that_frees_its_key_keeps_its_steps
    a_run_that_was_dropped_before_it_started_costs_no_attempt_and_keeps_the_steps_of_an_earlier_run
}

async fn a_dropped_run_that_frees_its_key_keeps_its_steps(world: World) {
    let policy = Policy::new().release_on_cancel(true).max_retries(Policy::NO_LIMIT);
    let (worker, effects) = (world.worker("a", policy), Effects::default());
    let dropped = tokio::spawn({
        let (worker, effects) = (worker.clone(), effects.clone());
        async move {
            let handler = || async {
                effects.does("a").await?;
                effects.happen("after it");
                pending().await
            };
            run(&worker, handler).await.0
        }
    });
    world.until(|| effects.0.lock().unwrap().len() == 2).await;
    // A record of the same microsecond would be taken for the same record.
    world.clock.advance(secs(1)).await;
    dropped.abort();
    dropped.await.unwrap_err();
    released(&world).await;
    assert_eq!(run(&worker, || effects.does("a")).await.0, Outcome::Ran);
    assert_eq!(effects.take(), ["a", "after it"]);
}

/// Waits until the store has answered a release.
async fn released(world: &World) {
    let is_release = |call: &StoreCall| call.verb == StoreOperation::Release && call.ended.is_some();
    world.until(|| world.store.log().iter().any(is_release)).await;
}

/// The answer to the claim is on its way when the call is dropped.
async fn a_run_that_was_dropped_before_it_started_costs_no_attempt_and_keeps_the_steps_of_an_earlier_run(world: World) {
    let policy = Policy::new().max_retries(Policy::NO_LIMIT);
    let effects = Effects::default();
    let first = effects.clone();
    dies(&world, policy, move || async move {
        first.does("a").await?;
        pending().await
    })
    .await;
    let dropped = world.worker("dropped", policy);
    dropped.store.delay_reply(StoreOperation::Claim, secs(1));
    let call = tokio::spawn(async move { run(&dropped, || async { Ok(0) }).await.0 });
    world.clock.settle().await;
    call.abort();
    call.await.unwrap_err();
    released(&world).await;
    let worker = world.worker("b", policy);
    let seen = run(&worker, || async {
        effects.does("a").await?;
        Ok(Lease::current().unwrap().attempt() as usize)
    })
    .await;
    assert_eq!((seen.1.unwrap(), effects.take()), (2, vec!["a".to_owned()]), "the second attempt, a replay");
}

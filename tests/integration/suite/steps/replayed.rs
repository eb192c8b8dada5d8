//! Completed steps, which do not run again.
use std::future::pending;
use std::sync::{Arc, Mutex};

use idempotent::steps::{StepError, step_key};
use idempotent::store::StateKind;
use idempotent::{Call, Executor, MemoryStore, Outcome, Policy, Rejection, step};
use idempotent_testkit::StoreOperation;

use super::{Effects, dies, kind, run, run_on};
use crate::common::{AppError, PlainHandler, World, id, ms, secs};
use crate::without_capabilities::Bare;

on_all_stores! {
    a_retry_replays_the_steps_that_were_done_and_runs_the_rest
    whatever_step_the_process_dies_in_each_step_done_before_is_done_once
    steps_survive_a_retry_where_attempts_are_not_counted
    steps_survive_a_later_run_that_fails_before_its_first_step
    steps_survive_a_later_run_that_cannot_read_them
    steps_survive_a_deferral_by_a_run_in_flight_inside
    a_failed_run_without_steps_still_leaves_no_trace
    each_step_has_a_key_that_stays
    an_unrecorded_step_of_a_dead_worker_runs_again_with_the_same_key
}

async fn a_retry_replays_the_steps_that_were_done_and_runs_the_rest(world: World) {
    let (worker, effects) = (world.worker("a", Policy::new()), Effects::default());
    let handler = async |fails: bool| {
        let stock = effects.does("check_stock").await?;
        let locked = effects.does("lock_stock").await?;
        if fails {
            return Err(AppError::NoStock);
        }
        Ok(stock + locked + effects.does("insert").await?)
    };
    let (outcome, _) = run(&worker, || handler(true)).await;
    assert!(matches!(outcome, Outcome::Released { .. }));
    assert_eq!(effects.take(), ["check_stock", "lock_stock"]);
    let (outcome, answer) = run(&worker, || handler(false)).await;
    assert_eq!((outcome, answer.unwrap()), (Outcome::Ran, 11 + 10 + 6));
    assert_eq!(effects.take(), ["insert"]);
    assert_eq!(run(&worker, || handler(false)).await.0, Outcome::Replayed);
    assert!(effects.take().is_empty());
}

const SIX: [&str; 6] = ["check_stock", "lock_stock", "insert_order", "notify", "set_status", "commit"];

async fn whatever_step_the_process_dies_in_each_step_done_before_is_done_once(world: World) {
    let effects = Effects::default();
    for dies_at in 1..SIX.len() {
        let effects = effects.clone();
        dies(&world, Policy::new(), move || async move {
            for name in &SIX[..dies_at] {
                effects.does(name).await?;
            }
            pending().await
        })
        .await;
    }
    let (worker, all) = (world.worker("b", Policy::new()), effects.clone());
    let whole = || async move {
        for name in SIX {
            all.does(name).await?;
        }
        Ok(0)
    };
    assert_eq!(run(&worker, whole).await.0, Outcome::Ran);
    assert_eq!(effects.take(), SIX, "each once, in order");
}

async fn steps_survive_a_retry_where_attempts_are_not_counted(world: World) {
    let (worker, effects) = (world.worker("a", Policy::new().max_retries(Policy::NO_LIMIT)), Effects::default());
    for (fails, done) in [(true, &["a"][..]), (true, &[]), (false, &[])] {
        let (outcome, _) = run(&worker, || async {
            effects.does("a").await?;
            if fails { Err(AppError::NoStock) } else { Ok(0) }
        })
        .await;
        assert_eq!(matches!(outcome, Outcome::Ran), !fails);
        assert_eq!(effects.take(), done);
        assert_eq!(kind(&world).await, if fails { StateKind::Vacant } else { StateKind::Consumed });
    }
}

async fn steps_survive_a_later_run_that_fails_before_its_first_step(world: World) {
    let policy = Policy::new().max_retries(Policy::NO_LIMIT);
    let effects = Effects::default();
    let first = effects.clone();
    dies(&world, policy, move || async move {
        first.does("a").await?;
        pending().await
    })
    .await;
    let worker = world.worker("b", policy);
    let (outcome, _) = run(&worker, || async { Err(AppError::NoStock) }).await;
    assert!(matches!(outcome, Outcome::Released { .. }));
    assert_eq!(kind(&world).await, StateKind::Vacant, "the record has steps, so it stays");
    let (outcome, _) = run(&worker, || effects.does("a")).await;
    assert_eq!(outcome, Outcome::Ran);
    assert_eq!(effects.take(), ["a"]);
}

async fn steps_survive_a_later_run_that_cannot_read_them(world: World) {
    let (worker, effects) = (world.worker("a", Policy::new().max_retries(Policy::NO_LIMIT)), Effects::default());
    let once = |fails| {
        let effects = effects.clone();
        async move {
            effects.does("a").await?;
            if fails { Err(AppError::NoStock) } else { Ok(0) }
        }
    };
    run(&worker, || once(true)).await.1.unwrap_err();
    worker.store.hang(StoreOperation::Steps, 1);
    let (other, clock) = (worker.clone(), world.clock.clone());
    let failing = tokio::spawn(async move { run(&other, || async { Err(AppError::NoStock) }).await.0 });
    clock.settle().await;
    clock.advance(secs(3)).await;
    assert!(matches!(failing.await.unwrap(), Outcome::Released { .. }));
    assert_eq!(run(&worker, || once(false)).await.0, Outcome::Ran);
    assert_eq!(effects.take(), ["a"], "once");
}

async fn steps_survive_a_deferral_by_a_run_in_flight_inside(world: World) {
    for (limit, policy) in
        [("none", Policy::new().max_retries(Policy::NO_LIMIT)), ("one", Policy::new().max_retries(0))]
    {
        let (worker, effects) = (world.worker("a", policy), Effects::default());
        let key = |part: &str| Call::new(id(&format!("{limit} {part}")));
        let busy = world.worker("busy", policy).executor;
        let call = key("inner");
        let held =
            tokio::spawn(async move { busy.run(call, PlainHandler::new(pending::<Result<(), Rejection>>)).await });
        world.clock.settle().await;
        let outer = async |inner: bool| {
            let handler = PlainHandler::new(async || {
                effects.does("a").await?;
                if inner {
                    let run = PlainHandler::new(async || Ok::<(), Rejection>(()));
                    worker.executor.run(key("inner"), run).await?;
                }
                Ok::<(), AppError>(())
            });
            Outcome::capture(worker.executor.run(key("outer"), handler)).await.1.unwrap()
        };
        assert!(matches!(outer(true).await, Outcome::InFlight { .. }), "{limit}");
        world.clock.advance(ms(2)).await;
        assert!(matches!(outer(true).await, Outcome::InFlight { .. }), "{limit}");
        world.clock.advance(ms(2)).await;
        assert_eq!(outer(false).await, Outcome::Ran, "{limit}");
        assert_eq!(effects.take(), ["a"], "{limit}");
        held.abort();
    }
}

async fn a_failed_run_without_steps_still_leaves_no_trace(world: World) {
    let worker = world.worker("a", Policy::new().max_retries(Policy::NO_LIMIT));
    run(&worker, || async { Err(AppError::NoStock) }).await.1.unwrap_err();
    assert_eq!(kind(&world).await, StateKind::Absent);
    assert!(world.asked(StoreOperation::Steps).is_empty(), "the first run of a key asks nobody");
}

async fn each_step_has_a_key_that_stays(world: World) {
    let worker = world.worker("a", Policy::new());
    let keys = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        let run = run(&worker, || async {
            keys.lock().unwrap().push((step_key("a")?, step_key("b")?));
            Err(AppError::NoStock)
        });
        run.await.1.unwrap_err();
    }
    let keys = keys.lock().unwrap();
    assert!(keys[0] == keys[1] && keys[0].0 != keys[0].1);
    assert!(matches!(step_key("a"), Err(Rejection::Journal(StepError::NotInRun { .. }))));
}

/// The external system recognises the repetition by the key.
async fn an_unrecorded_step_of_a_dead_worker_runs_again_with_the_same_key(world: World) {
    let effects = Effects::default();
    let charge = |effects: Effects, dies: bool| async move {
        effects.does("lock_stock").await?;
        let effect = || async move {
            effects.happen(&step_key("charge")?.to_string());
            if dies { pending().await } else { Ok::<usize, AppError>(1) }
        };
        step("charge", effect).await
    };
    let first = effects.clone();
    dies(&world, Policy::new(), move || charge(first, true)).await;
    let worker = world.worker("b", Policy::new());
    assert_eq!(run(&worker, || charge(effects.clone(), false)).await.0, Outcome::Ran);
    let happened = effects.take();
    assert_eq!((happened.len(), happened[0].as_str()), (3, "lock_stock"), "{happened:?}");
    assert_eq!(happened[1], happened[2], "the third one is the repetition");
}

#[tokio::test]
async fn a_store_without_a_journal_says_so_before_the_step_runs() {
    let effects = Effects::default();
    let executor = Executor::new(Bare(MemoryStore::new()));
    let (outcome, answer) = run_on(&executor, || effects.does("a")).await;
    let Err(AppError::Idempotent(rejection @ Rejection::Journal(StepError::NoJournal { .. }))) = answer else {
        panic!("{answer:?}")
    };
    assert!(rejection.to_string().contains("step `a`: the store keeps no journal"), "{rejection}");
    assert!(matches!(outcome, Outcome::Released { .. }));
    assert!(effects.take().is_empty());
}

#[tokio::test]
async fn a_step_outside_of_a_run_says_so_and_does_not_run() {
    let effects = Effects::default();
    let answer = effects.does("a").await;
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Journal(StepError::NotInRun { .. })))));
    assert!(effects.take().is_empty());
}

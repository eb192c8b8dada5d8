//! Metrics of runs and of store calls.
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Call, DefaultReply, Executor, Handler, Identity, Json, MemoryStore, OnBrokenOrder, Outcome, Policy, Rejection,
    Scene, step,
};
use idempotent_testkit::{FOREVER, StoreOperation};
use tokio::sync::Barrier;

use crate::world::{World, identity, runs};

const LEASE: Duration = Duration::from_secs(30);

/// Starts a run whose handler never ends.
fn hangs(executor: &Executor, key: &str) -> tokio::task::JoinHandle<Option<Outcome>> {
    let (executor, call) = (executor.clone(), Call::new(identity(key)));
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { pending::<Result<(), Rejection>>().await });
    tokio::spawn(async move { Outcome::capture(executor.run(call, handler)).await.1 })
}

#[tokio::test]
async fn each_outcome_has_a_counter_that_starts_at_0() {
    let world = World::new();
    let executor = world.executor(Policy::new());
    assert_eq!(runs(&executor, Call::new(identity("1")), Ok(1)).await, Outcome::Ran);
    assert_eq!(runs(&executor, Call::new(identity("1")), Ok(1)).await, Outcome::Replayed);
    for name in Outcome::names() {
        let count = world.value(
            "idempotent_deliveries_total",
            &[&format!("outcome=\"{name}\""), "scope=\"orders\"", "scene=\"mq\""],
        );
        assert_eq!(count, Some(f64::from(u8::from(["ran", "replayed"].contains(name)))), "{name}");
    }
    for (class, count) in [("executed", 1.0), ("duplicate", 1.0)] {
        let labels = [&*format!("class=\"{class}\"")];
        assert_eq!(world.value("idempotent_run_duration_seconds_count", &labels), Some(count), "{class}");
    }
}

#[tokio::test]
async fn a_handler_is_active_until_it_ends_in_any_way() {
    let world = World::new();
    let executor = world.executor(Policy::new().lease(LEASE));
    let active = || world.value("idempotent_runs_active", &[]);
    let run = hangs(&executor, "dropped");
    world.clock.settle().await;
    assert_eq!(active(), Some(1.0));
    world.clock.advance(Duration::from_secs(2)).await;
    run.abort();
    world.clock.settle().await;
    assert_eq!(active(), Some(0.0));
    runs(&executor, Call::new(identity("ok")), Ok(1)).await;
    runs(&executor, Call::new(identity("error")), Err(Rejection::LeaseLost)).await;
    let panics = executor.clone();
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async {
        if true { panic!("on purpose") } else { Ok::<(), Rejection>(()) }
    });
    let panicked = tokio::spawn(async move { panics.run(Call::new(identity("panic")), handler).await });
    assert!(panicked.await.is_err());
    assert_eq!(active(), Some(0.0));
    for end in ["ok", "error", "panic", "aborted"] {
        let labels = [&*format!("result=\"{end}\"")];
        assert_eq!(world.value("idempotent_handler_duration_seconds_count", &labels), Some(1.0), "{end}");
    }
    let aborted = world.value("idempotent_handler_duration_seconds_sum", &["result=\"aborted\""]);
    assert_eq!(aborted, Some(2.0), "in seconds");
}

#[tokio::test]
async fn a_batch_has_one_handler_for_each_of_its_items() {
    let world = World::new();
    let executor = world.executor(Policy::new());
    let items = ["1", "2", "3"].map(|key| (Call::new(identity(key)), key));
    let handler =
        Handler::<DefaultReply, Json, _, _>::batch(|items: Vec<idempotent_core::BatchItem<&str>>| async move {
            items.iter().map(|item| if item.item == "2" { Err(Rejection::LeaseLost) } else { Ok(1) }).collect()
        });
    executor.run_batch(items.to_vec(), handler).await;
    let ended = |result: &str| world.value("idempotent_handler_duration_seconds_count", &[result]);
    assert_eq!((ended("result=\"ok\""), ended("result=\"error\"")), (Some(2.0), Some(1.0)));
    assert_eq!(world.value("idempotent_runs_active", &[]), Some(0.0));
}

#[tokio::test]
async fn a_call_of_the_store_is_measured_with_its_result() {
    let world = World::new();
    let executor = world.executor(Policy::new().lease(LEASE));
    world.store.delay(StoreOperation::Claim, Duration::from_secs(1));
    let run = tokio::spawn({
        let executor = executor.clone();
        async move { runs(&executor, Call::new(identity("1")), Ok(1)).await }
    });
    world.clock.settle().await;
    world.clock.advance(Duration::from_secs(1)).await;
    assert_eq!(run.await.unwrap(), Outcome::Ran);
    let of = |kind: &str, operation: &str, result: &str| {
        let labels = [&*format!("operation=\"{operation}\""), &*format!("result=\"{result}\""), "store=\"memory\""];
        world.value(&format!("idempotent_store_operation_duration_seconds_{kind}"), &labels)
    };
    assert_eq!((of("count", "claim", "ok"), of("sum", "claim", "ok")), (Some(1.0), Some(1.0)));
    assert_eq!(of("count", "complete", "ok"), Some(1.0));
    world.store.fail_before(StoreOperation::Complete, 1);
    let second = tokio::spawn({
        let executor = executor.clone();
        async move {
            runs(&executor, Call::new(identity("3")), Err(Rejection::LeaseLost)).await;
            runs(&executor, Call::new(identity("2")), Ok(1)).await
        }
    });
    world.clock.settle().await;
    world.clock.advance(Duration::from_secs(1)).await;
    world.clock.settle().await;
    world.clock.advance(Duration::from_secs(2)).await;
    assert_eq!(second.await.unwrap(), Outcome::Ran);
    assert_eq!((of("count", "complete", "ok"), of("count", "complete", "not_applied")), (Some(2.0), Some(1.0)));
    assert_eq!((of("count", "claim", "ok"), of("count", "release", "ok")), (Some(3.0), Some(1.0)));
    let errors = world.value("idempotent_store_errors_total", &["operation=\"complete\"", "kind=\"not_applied\""]);
    assert_eq!(errors, Some(1.0));
}

#[tokio::test]
async fn renewals_lost_leases_takeovers_and_attempts_are_counted() {
    let world = World::new();
    let executor = world.executor(Policy::new().lease(LEASE));
    let run = hangs(&executor, "1");
    world.clock.settle().await;
    world.clock.advance(Duration::from_secs(11)).await;
    let renewed =
        |result| world.value("idempotent_store_operation_duration_seconds_count", &["operation=\"renew\"", result]);
    assert_eq!(renewed("result=\"ok\""), Some(1.0));
    world.store.lose_request(StoreOperation::Renew, FOREVER);
    world.clock.advance(LEASE).await;
    assert_eq!(run.await.unwrap(), Some(Outcome::LeaseLost));
    assert!(renewed("result=\"ambiguous\"").is_some_and(|count| count >= 1.0), "a renewal without an answer");
    assert_eq!(world.value("idempotent_lease_lost_total", &["scope=\"orders\""]), Some(1.0));
    assert_eq!(world.value("idempotent_takeovers_total", &[]), Some(0.0));
    world.clock.advance(LEASE).await;
    assert_eq!(runs(&executor, Call::new(identity("1")), Ok(1)).await, Outcome::Ran);
    assert_eq!(world.value("idempotent_takeovers_total", &["scope=\"orders\""]), Some(1.0));
    assert_eq!(world.value("idempotent_run_attempts_sum", &[]), Some(2.0));
}

#[tokio::test]
async fn broken_order_parked_steps_and_results_that_are_too_large_are_counted() {
    let world = World::new();
    let patience = Duration::from_secs(60);
    let executor = world.executor(Policy::new().on_broken_order(OnBrokenOrder::Skip(patience)).max_result(1));
    let after = || Call::new(identity("2")).after("1");
    assert!(matches!(runs(&executor, after(), Ok(1)).await, Outcome::Waiting { .. }));
    world.clock.advance(patience).await;
    assert_eq!(runs(&executor, after(), Ok(100)).await, Outcome::Ran);
    let broken = world.value("idempotent_order_broken_total", &["why=\"missing\"", "skipped=\"true\""]);
    assert_eq!(broken, Some(1.0));
    assert_eq!(world.value("idempotent_results_not_kept_total", &[]), Some(1.0), "a result of three digits");
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async {
        step("charge", || async { Err::<(), _>(Rejection::LeaseLost) }).at_most_once().await
    });
    let (_, outcome) = Outcome::capture(executor.run(Call::new(identity("3")), handler)).await;
    assert!(matches!(outcome, Some(Outcome::Dead { .. })), "{outcome:?}");
    assert_eq!(world.value("idempotent_steps_parked_total", &[]), Some(1.0));
}

#[tokio::test]
async fn no_series_contains_a_key_a_tenant_a_result_or_a_token() {
    let world = World::new();
    let executor = world.executor(Policy::new());
    let identity = || Identity::new(Scene::Mq, "orders", "planted-key").tenant("planted-tenant");
    let handler =
        || Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, Rejection>("planted-result".to_owned()) });
    executor.run(Call::new(identity()), handler()).await.unwrap();
    executor.run(Call::new(identity()), handler()).await.unwrap();
    let text = world.handle.render();
    let key = identity().key(executor.namespace()).unwrap();
    assert!(text.contains("orders"), "the scope is a label");
    assert!(!text.contains("planted") && !text.contains(key.as_str()), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn all_outcomes_of_a_storm_with_cancellations_are_counted_once() {
    let world = World::new();
    let executor = Executor::builder(MemoryStore::new()).observer(world.observer()).build().unwrap();
    let start = Arc::new(Barrier::new(8));
    let tasks = (0..8).map(|task| {
        let (executor, start) = (executor.clone(), start.clone());
        tokio::spawn(async move {
            start.wait().await;
            for number in 0..200 {
                let handler = Handler::<DefaultReply, Json, _, _>::new(|| async move {
                    tokio::task::yield_now().await;
                    if number % 3 == 0 { Err(Rejection::LeaseLost) } else { Ok(number) }
                });
                let run = executor.run(Call::new(identity(&(number % 50).to_string())), handler);
                if (task + number) % 5 == 0 {
                    // Drops the run at its first pause.
                    tokio::select! { biased; _ = run => {}, () = async {} => {} }
                } else {
                    let _ = run.await;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let counts = executor.counts();
    assert_eq!(counts.ended(), 1_600);
    for (name, count) in counts.iter() {
        let recorded = world.value("idempotent_deliveries_total", &[&format!("outcome=\"{name}\"")]);
        assert_eq!(recorded, Some(count as f64), "{name}");
    }
    assert!(counts.of("abandoned") > 0, "{counts:?}");
    assert_eq!(world.value("idempotent_runs_active", &[]), Some(0.0));
}

//! Waiting, batches, drops and rules.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{AppError, End, Job, id, ms, on_memory, secs};
use idempotent::reply::DefaultReply;
use idempotent::store::StateKind;
use idempotent::{
    BatchItem, Call, Clock, Disposition, Executor, Fingerprint, Handler, Json, Lease, OnStoreError, Outcome, Policy,
    Rejection, Scene,
};
use idempotent_testkit::StoreOperation;

#[test]
fn a_dead_letter_with_a_lost_response_is_dead() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().max_retries(0));
        worker.store.lose_reply(StoreOperation::Release, 1);
        let run = worker.spawn("k", &Job::ends(ms(0), End::Err)).await;
        world.clock.advance(secs(1)).await;
        let outcome = run.await.unwrap().0;
        assert!(matches!(outcome, Outcome::Dead { .. }), "{outcome:?}");
    });
}

fn with_print(key: &'static str, payload: &str) -> (Call, &'static str) {
    (Call::new(id(key)).fingerprint(Ok(Fingerprint::of_bytes(payload))), key)
}

#[test]
fn a_duplicate_in_a_batch_is_judged_by_the_record_not_by_its_neighbour() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let good = || {
            Handler::<DefaultReply, Json, _, _>::batch(|items: Vec<BatchItem<&'static str>>| async move {
                items.iter().map(|_| Ok::<_, AppError>(1u32)).collect()
            })
        };
        worker.executor.run_batch(vec![with_print("k", "right")], good()).await;
        let answers = worker.executor.run_batch(vec![with_print("k", "wrong"), with_print("k", "right")], good()).await;
        assert_eq!(answers[0].outcome, Outcome::Mismatch);
        assert_eq!(answers[1].outcome, Outcome::Replayed, "done, with this very payload; dead-lettered instead");
    });
}

#[test]
fn a_payload_that_differs_from_a_failed_one_is_not_dead_lettered() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let bad = Handler::<DefaultReply, Json, _, _>::batch(|items: Vec<BatchItem<&'static str>>| async move {
            items.iter().map(|_| Err::<u32, _>(AppError::NoStock)).collect()
        });
        let answers = worker.executor.run_batch(vec![with_print("k", "1"), with_print("k", "2")], bad).await;
        assert!(matches!(answers[0].outcome, Outcome::Released { .. }));
        let outcome = &answers[1].outcome;
        assert!(
            matches!(outcome.disposition(), Disposition::Retry { .. }),
            "a vacant record takes the new fingerprint, but the second is {outcome:?}"
        );
    });
}

#[test]
fn an_empty_namespace_is_refused_at_start_and_is_not_the_messages_fault() {
    on_memory(async |world| {
        let built = Executor::builder(world.store.clone()).namespace("").build();
        if let Ok(executor) = built {
            let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<u32, AppError>(0) });
            let (_, outcome) = Outcome::capture(executor.run(Call::new(id("k")), handler)).await;
            panic!("built; every message ends as {:?}", outcome.unwrap().disposition());
        }
    });
}

/// "The key of a run that started is freed": one that had already succeeded is not such a run.
#[test]
fn release_on_cancel_does_not_free_a_run_that_succeeded() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().release_on_cancel(true));
        worker.store.lose_request(StoreOperation::Complete, 1);
        let job = Job::takes(ms(100));
        let run = worker.spawn("k", &job).await;
        world.clock.advance(ms(105)).await; // the handler has ended well; its completion is tried again
        run.abort();
        run.await.unwrap_err();
        world.clock.settle().await;
        let kind = world.record("k").await.unwrap().state.kind();
        assert_ne!(kind, StateKind::Vacant, "the effect happened, and the key is free to run again at once");
    });
}

/// `Cancelled`: "dropped before its handler started … not an attempt".
#[test]
fn a_started_run_that_was_cancelled_counts_for_the_run_around_it() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().max_retries(1));
        let mut last = None;
        for _ in 0..5 {
            let (executor, clock) = (worker.executor.clone(), world.clock.clone());
            let run = tokio::spawn(async move {
                let outer = Handler::<DefaultReply, Json, _, _>::new({
                    let (executor, clock) = (executor.clone(), clock.clone());
                    move || async move {
                        let inner = Handler::<DefaultReply, Json, _, _>::new(|| async {
                            std::future::pending::<()>().await;
                            Ok::<u32, AppError>(1)
                        });
                        let call = Call::new(id("inner"))
                            .policy(Policy::new().release_on_cancel(true).max_retries(Policy::NO_LIMIT));
                        tokio::select! {
                            answer = executor.run(call, inner) => answer,
                            () = clock.sleep_until(clock.now() + secs(1)) => Err(AppError::NoStock),
                        }
                    }
                });
                Outcome::capture(executor.run(Call::new(id("outer")), outer)).await.1.unwrap()
            });
            world.clock.advance(secs(2)).await;
            last = Some(run.await.unwrap());
        }
        assert!(matches!(last, Some(Outcome::Dead { .. })), "max_retries 1, five failing runs, and still {last:?}");
    });
}

#[test]
fn a_nested_run_of_a_batch_items_key_is_refused_by_name() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let seen = Arc::new(Mutex::new(None));
        let handler = Handler::<DefaultReply, Json, _, _>::batch({
            let (executor, seen) = (worker.executor.clone(), seen.clone());
            move |items: Vec<BatchItem<&'static str>>| async move {
                let inner = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<u32, AppError>(1) });
                let outcome = Outcome::capture(executor.run(Call::new(id("k")), inner)).await.1;
                *seen.lock().unwrap() = outcome;
                items.iter().map(|_| Ok::<u32, AppError>(1)).collect()
            }
        });
        worker.executor.run_batch(vec![(Call::new(id("k")), "k")], handler).await;
        assert_eq!(*seen.lock().unwrap(), Some(Outcome::Nested));
    });
}

#[test]
fn max_run_forever_is_refused_or_works() {
    on_memory(async |world| {
        for policy in [Policy::new().max_run(Duration::MAX), serde_json::from_str(r#"{"max_run":"forever"}"#).unwrap()]
        {
            assert!(policy.check(&Scene::Mq).is_ok());
            let worker = world.worker("a", policy);
            let run = worker.spawn("k", &Job::takes(ms(0))).await;
            assert!(matches!(run.await, Ok((Outcome::Ran | Outcome::Replayed, _))), "panicked");
        }
    });
}

#[test]
fn drain_takes_any_grace() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let drain = worker.drain(Duration::MAX);
        world.clock.settle().await;
        assert!(drain.await.is_ok(), "panicked");
    });
}

#[test]
fn endless_delays_are_refused_or_work() {
    on_memory(async |world| {
        let ever = Duration::MAX;
        let policy = Policy::new().retry_delay(ever).retry_delay_max(ever).jitter(20);
        assert!(policy.check(&Scene::Mq).is_ok());
        let worker = world.worker("a", policy);
        let run = worker.spawn("k", &Job::ends(ms(0), End::Err)).await;
        assert!(run.await.is_ok(), "panicked");
    });
}

#[test]
fn endless_hints_are_refused_or_work() {
    on_memory(async |world| {
        let ever = Duration::MAX;
        let policy = Policy::new().in_flight_delay(ever).in_flight_delay_max(ever).jitter(20);
        let worker = world.worker("b", policy);
        let _held = worker.spawn("held", &Job::takes(secs(10))).await;
        let run = worker.spawn("held", &Job::takes(ms(0))).await;
        assert!(run.await.is_ok(), "panicked");
    });
}

#[test]
fn results_are_never_shown() {
    on_memory(async |world| {
        let done = idempotent::store::Completion { value: Some(Arc::from(&b"SECRET"[..])), retain: secs(1) };
        let shown = format!("{done:?}");
        assert!(!shown.contains("83, 69, 67, 82"), "{shown}");
        let _ = world;
    });
}

#[test]
fn an_error_about_a_result_does_not_show_it() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let write =
            Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, AppError>("card 4111-1111".to_owned()) });
        worker.executor.run(Call::new(id("k")), write).await.unwrap();
        let read = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<u32, Rejection>(1) });
        let error = worker.executor.run(Call::new(id("k")), read).await.unwrap_err();
        assert!(matches!(error, Rejection::ConsumedWithoutResult { .. }));
        assert!(!error.to_string().contains("4111"), "{error}");
    });
}

/// The policy of a lease's span and the inner frame of an unprotected run.
#[test]
fn an_unprotected_run_has_no_lease_not_even_that_of_a_run_around_it() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let seen = Arc::new(Mutex::new(None));
        let run = tokio::spawn({
            let (worker, seen) = (worker.clone(), seen.clone());
            async move {
                let outer = Handler::<DefaultReply, Json, _, _>::new({
                    let worker = worker.clone();
                    move || async move {
                        worker.store.down();
                        let inner = Handler::<DefaultReply, Json, _, _>::new(move || async move {
                            *seen.lock().unwrap() = Some(Lease::current().is_some());
                            Ok::<u32, AppError>(1)
                        });
                        let call =
                            Call::new(id("inner")).policy(Policy::new().on_store_error(OnStoreError::RunUnprotected));
                        let answer = worker.executor.run(call, inner).await;
                        worker.store.up();
                        answer
                    }
                });
                worker.executor.run(Call::new(id("outer")), outer).await.is_ok()
            }
        });
        world.clock.advance(secs(1)).await;
        assert!(run.await.unwrap());
        assert_eq!(*seen.lock().unwrap(), Some(false), "another key's fencing number is not its own");
    });
}

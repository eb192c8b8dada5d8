//! Waiting, batches, drops and rules.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{AppError, End, Job, PlainHandler, assert_in_flight, batch_of, id, ms, on_memory, secs};
use idempotent::store::StateKind;
use idempotent::{
    BatchItem, Call, Clock, Disposition, Executor, Fingerprint, MemoryStore, Outcome, Policy, Rejection, Scene,
};
use idempotent_testkit::StoreOperation;

use crate::without_capabilities::Bare;

fn with_print(key: &'static str, payload: &str) -> (Call, &'static str) {
    (Call::new(id(key)).fingerprint(Ok(Fingerprint::of_bytes(payload))), key)
}

#[test]
fn a_duplicate_in_a_batch_is_judged_by_the_record_not_by_its_neighbour() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let good = || batch_of(|_| Ok(1_u32));
        worker.executor.run_batch(vec![with_print("k", "right")], good()).await;
        let answers = worker.executor.run_batch(vec![with_print("k", "wrong"), with_print("k", "right")], good()).await;
        assert_eq!(answers[0].outcome, Outcome::Mismatch);
        assert_eq!(answers[1].outcome, Outcome::Replayed, "done, with this very payload; dead-lettered instead");
    });
}

#[tokio::test]
async fn each_item_of_a_large_batch_has_its_own_answer_in_order() {
    for executor in [Executor::new(MemoryStore::new()), Executor::new(Bare(MemoryStore::new()))] {
        let run = || {
            let items = (0..100_u32).map(|number| (Call::new(id(&number.to_string())), number)).collect();
            let fails = |number: u32| number.is_multiple_of(3);
            let handler = batch_of(move |number| if fails(number) { Err(AppError::NoStock) } else { Ok(number) });
            executor.run_batch(items, handler)
        };
        for (good, bad_attempt) in [(Outcome::Ran, 1), (Outcome::Replayed, 2)] {
            let answers = run().await;
            assert_eq!(answers.len(), 100);
            for (number, answer) in (0..).zip(answers) {
                let (key, attempt) = (answer.key.unwrap(), answer.attempt);
                assert_eq!(key, id(&u32::to_string(&number)).key("idempotent").unwrap());
                match answer.output {
                    Ok(value) => assert_eq!((value, &answer.outcome), (number, &good)),
                    Err(_) => assert_eq!((number % 3, attempt), (0, Some(bad_attempt))),
                }
            }
        }
    }
}

#[test]
fn a_payload_that_differs_from_a_failed_one_is_not_dead_lettered() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let bad = batch_of(|_| Err::<u32, _>(AppError::NoStock));
        let answers = worker.executor.run_batch(vec![with_print("k", "1"), with_print("k", "2")], bad).await;
        assert!(matches!(answers[0].outcome, Outcome::Released { .. }));
        let outcome = &answers[1].outcome;
        assert!(
            matches!(outcome.disposition(), Disposition::Retry { .. }),
            "a vacant record takes the new fingerprint, but the second is {outcome:?}"
        );
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
                let outer = PlainHandler::new({
                    let (executor, clock) = (executor.clone(), clock.clone());
                    move || async move {
                        let inner = PlainHandler::new(|| async {
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
        let handler = PlainHandler::batch({
            let (executor, seen) = (worker.executor.clone(), seen.clone());
            move |items: Vec<BatchItem<&'static str>>| async move {
                let inner = PlainHandler::new(|| async { Ok::<u32, AppError>(1) });
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
fn an_error_about_a_result_does_not_show_it() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let write = PlainHandler::new(|| async { Ok::<_, AppError>("card 4111-1111".to_owned()) });
        worker.executor.run(Call::new(id("k")), write).await.unwrap();
        let read = PlainHandler::new(|| async { Ok::<u32, Rejection>(1) });
        let error = worker.executor.run(Call::new(id("k")), read).await.unwrap_err();
        assert!(matches!(error, Rejection::ConsumedWithoutResult { .. }));
        assert!(!error.to_string().contains("4111"), "{error}");
    });
}

#[test]
fn an_empty_namespace_is_refused_at_start() {
    let built = Executor::builder(idempotent::MemoryStore::new()).namespace("").build();
    assert!(built.is_err(), "each message would fail");
}

#[test]
fn durations_without_an_end_are_valid() {
    let forever = Duration::MAX;
    let delays = Policy::new().retry_delay(forever).retry_delay_max(forever).jitter(20);
    let hints = Policy::new().in_flight_delay(forever).in_flight_delay_max(forever).jitter(20);
    let from_configuration = serde_json::from_str(r#"{"max_run":"forever"}"#).unwrap();
    for policy in [Policy::new().max_run(forever), from_configuration, delays, hints] {
        on_memory(async |world| {
            assert!(policy.check(&Scene::Mq).is_ok(), "{policy:?}");
            let worker = world.worker("a", policy);
            let _held = worker.spawn("held", &Job::takes(secs(10))).await;
            assert_in_flight(&worker.outcome("held", &Job::takes(ms(0))).await);
            assert_eq!(worker.outcome("succeeds", &Job::takes(ms(0))).await, Outcome::Ran, "{policy:?}");
            let failed = worker.outcome("fails", &Job::ends(ms(0), End::Err)).await;
            assert!(matches!(failed, Outcome::Released { .. }), "{policy:?}: {failed:?}");
        });
    }
    on_memory(async |world| {
        let drain = world.worker("a", Policy::new()).drain(forever);
        world.clock.settle().await;
        assert!(drain.await.is_ok(), "panicked");
    });
}

//! Reports of runs to an observer that wants timings, also of settlements in the background.
use std::sync::{Arc, Mutex};

use idempotent::executor::DeliveryContext;
use idempotent::observe::RunInfo;
use idempotent::{Call, Event, Observer, OnInFlight, OnLeaseLost, Outcome, Policy};
use idempotent_testkit::{FOREVER, StoreOperation};

use crate::common::{End, Job, Worker, World, id, ms, on_memory, secs};

/// An observer that keeps its events as text, with times in milliseconds.
#[derive(Clone, Debug, Default)]
struct Timings(Arc<Mutex<Vec<String>>>);

impl Observer for Timings {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        let text = match event {
            Event::HandlerStarted => "handler started".to_owned(),
            Event::HandlerEnded { end, elapsed } => format!("handler {end:?} after {}", elapsed.as_millis()),
            Event::StoreAnswered { step, error, elapsed } => {
                format!("{step} {} after {}", if error.is_none() { "answered" } else { "failed" }, elapsed.as_millis())
            }
            Event::SettledLate { step, error } => {
                let attempt = (run.attempt, run.fencing.is_some());
                format!("late {step} {attempt:?}: {}", error.map_or("done".to_owned(), ToString::to_string))
            }
            Event::Ended { outcome, elapsed } => format!("{} after {}", outcome.name(), elapsed.as_millis()),
            _ => return,
        };
        self.0.lock().unwrap().push(text);
    }

    fn wants_timing(&self) -> bool {
        true
    }
}

impl Timings {
    fn worker(&self, world: &World, policy: Policy) -> Worker {
        world.worker_by("a", policy, |builder| builder.observer(self.clone()))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[test]
fn each_step_of_a_run_is_reported_with_its_time() {
    on_memory(async |world| {
        let timings = Timings::default();
        let worker = timings.worker(&world, Policy::new());
        worker.store.delay_reply(StoreOperation::Claim, ms(100));
        worker.store.delay_reply(StoreOperation::Complete, ms(50));
        let run = worker.spawn("k", &Job::takes(ms(1_000))).await;
        world.clock.advance(ms(1_150)).await;
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
        let expected = [
            "claim answered after 100",
            "handler started",
            "handler Ok after 1000",
            "complete answered after 50",
            "ran after 1150",
        ];
        assert_eq!(timings.take(), expected);
    });
}

#[test]
fn each_try_of_a_release_is_reported() {
    on_memory(async |world| {
        let timings = Timings::default();
        let worker = timings.worker(&world, Policy::new());
        worker.store.fail_before(StoreOperation::Release, 2);
        let run = worker.spawn("k", &Job::ends(ms(0), End::Err)).await;
        world.clock.advance(ms(30)).await;
        assert!(matches!(run.await.unwrap().0, Outcome::Released { .. }));
        let expected = ["release failed after 0", "release failed after 0", "release answered after 0"];
        let reported = timings.take();
        assert_eq!(reported[3..6], expected, "{reported:?}");
    });
}

/// Runs a job whose settlement continues in the background, and returns the report of its end.
async fn late(world: &World, step: StoreOperation, ends: End) -> String {
    let timings = Timings::default();
    let policy = Policy::new().lease(secs(30)).settle_timeout(ms(1_500)).max_retries(5);
    let worker = timings.worker(world, policy);
    // The first copy is applied, and has no answer in time. The answer to the second copy arrives after the call.
    worker.store.hang(step, 1);
    worker.store.delay_reply(step, secs(1));
    let run = worker.spawn("k", &Job::ends(ms(0), ends)).await;
    world.clock.advance(ms(1_500)).await;
    assert!(run.is_finished());
    let reported = timings.take();
    assert!(!reported.iter().any(|text| text.starts_with("late")), "{reported:?}");
    worker.store.heal();
    world.clock.advance(secs(30)).await;
    let reported = timings.take();
    let late: Vec<_> = reported.iter().filter(|text| text.starts_with("late")).collect();
    let [late] = &late[..] else { panic!("{reported:?}") };
    (*late).clone()
}

#[test]
fn a_settlement_in_the_background_whose_first_copy_was_applied_is_done() {
    for (step, ends, expected) in [
        (StoreOperation::Complete, End::Ok, "late complete (Some(1), true): done"),
        (StoreOperation::Release, End::Err, "late release (Some(1), true): done"),
    ] {
        on_memory(async |world| assert_eq!(late(&world, step, ends).await, expected));
    }
}

/// Supersedes a run whose settlement continues in the background, and returns the report of its end.
async fn superseded(world: &World, step: StoreOperation, ends: End, other_ends: Option<End>) -> String {
    let timings = Timings::default();
    let policy = Policy::new().lease(secs(30)).settle_timeout(ms(1_500)).max_retries(5);
    let worker = timings.worker(world, policy);
    // No copy reaches the store before another worker has taken over.
    worker.store.fail_before(step, FOREVER);
    let run = worker.spawn("k", &Job::ends(ms(0), ends)).await;
    world.clock.advance(ms(1_500)).await;
    drop(run.await.unwrap());
    let record = world.record("k").await.unwrap();
    let admin = idempotent::Store::capabilities(&world.store).admin.unwrap();
    admin.forget(&crate::common::key_of("k"), record.fencing, true, secs(60)).await.unwrap();
    let job = other_ends.map_or_else(|| Job::takes(secs(600)), |ends| Job::ends(ms(0), ends));
    let _other = world.worker("b", policy).spawn("k", &job).await;
    worker.store.heal();
    world.clock.advance(secs(2)).await;
    let reported = timings.take();
    let late = reported.iter().find(|text| text.starts_with("late")).unwrap_or_else(|| panic!("{reported:?}"));
    late.clone()
}

#[test]
fn a_settlement_in_the_background_of_a_run_that_was_superseded_is_lost() {
    for (step, ends) in [(StoreOperation::Complete, End::Ok), (StoreOperation::Release, End::Err)] {
        on_memory(async |world| {
            let late = superseded(&world, step, ends, None).await;
            assert!(late.contains("the lease was lost; the key is Consuming"), "{late}");
        });
    }
}

/// The state is that of an applied release, but no copy of this one was applied.
#[test]
fn a_release_in_the_background_is_lost_although_another_run_has_left_the_same_state() {
    on_memory(async |world| {
        let late = superseded(&world, StoreOperation::Release, End::Err, Some(End::Err)).await;
        assert!(late.contains("the lease was lost; the key is Vacant"), "{late}");
    });
}

#[test]
fn a_failed_run_has_lost_its_lease_although_another_run_has_left_the_same_state() {
    on_memory(async |world| {
        let policy = Policy::new().lease(secs(30)).on_lease_lost(OnLeaseLost::Finish);
        let worker = world.worker("a", policy);
        worker.store.fail_before(StoreOperation::Renew, FOREVER);
        let run = worker.spawn("k", &Job::ends(secs(60), End::Err)).await;
        world.clock.advance(secs(31)).await;
        let other = world.worker("b", policy).outcome("k", &Job::ends(ms(0), End::Err)).await;
        assert!(matches!(other, Outcome::Released { .. }), "{other:?}");
        world.clock.advance(secs(30)).await;
        assert_eq!(run.await.unwrap().0, Outcome::LeaseLost);
    });
}

/// A consumer acknowledges such a delivery only if the policy of its run allows that.
#[test]
fn a_duplicate_of_a_run_in_flight_says_whether_its_policy_acknowledges_it() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let _held = worker.spawn("k", &Job::takes(secs(600))).await;
        let delivery = DeliveryContext::new().logged();
        for (policy, key, expected) in [
            (Policy::new(), "k", false),
            (Policy::new().on_in_flight(OnInFlight::Ack), "k", true),
            (Policy::new().on_in_flight(OnInFlight::Ack), "other", false),
        ] {
            let (call, job) = (Call::new(id(key)).policy(policy), Job::takes(ms(0)));
            let run = Outcome::capture_run(worker.deliver_call(call, &job));
            let summary = worker.executor.scope_of_delivery(delivery.clone(), run).await.1.unwrap();
            assert_eq!(summary.acks_in_flight, expected, "{policy:?} {key}");
        }
    });
}

//! Unprotected runs, leases, heartbeats, drains.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::{AppError, End, Job, PlainHandler, id, ms, on_memory, secs};
use idempotent::observe::RunInfo;
use idempotent::{BatchItem, Call, Disposition, Event, Observer, OnLeaseLost, OnStoreError, Outcome, Policy};
use idempotent_testkit::{FOREVER, StoreOperation};

#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);
impl Observer for Seen {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        let name = match event {
            Event::Ended { outcome, .. } => format!("ended {}", outcome.name()),
            Event::LeaseLost => "lease lost".to_owned(),
            other => format!("{other:?}").chars().take(12).collect(),
        };
        self.0.lock().unwrap().push(name);
    }
}
impl Seen {
    fn count(&self, name: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|seen| *seen == name).count()
    }
}

fn is_ack(outcome: &Outcome) -> bool {
    outcome.disposition() == Disposition::Ack
}

#[test]
fn an_unprotected_run_that_failed_is_not_acked() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().on_store_error(OnStoreError::RunUnprotected));
        worker.store.down();
        let run = worker.spawn("k", &Job::ends(ms(0), End::Err)).await;
        world.clock.advance(secs(1)).await;
        let (outcome, answer) = run.await.unwrap();
        assert!(answer.is_err());
        assert!(!is_ack(&outcome), "the handler failed, and {outcome:?} alone asks for an ack");
    });
}

#[test]
fn an_unprotected_business_failure_is_not_acked_even_if_combined_with_the_value() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().on_store_error(OnStoreError::RunUnprotected));
        worker.store.down();
        let run = tokio::spawn(async move {
            let handler = PlainHandler::new(|| async { Ok::<u32, AppError>(0) }).failed_if(|v| *v == 0);
            Outcome::capture(worker.executor.run(Call::new(id("k")), handler)).await
        });
        world.clock.advance(secs(1)).await;
        let (answer, outcome) = run.await.unwrap();
        assert_eq!(answer.unwrap(), 0);
        let settled = outcome.unwrap().settle(Disposition::Ack);
        assert_ne!(settled, Disposition::Ack, "failed_if said: not done");
    });
}

#[test]
fn a_batch_does_not_start_an_item_whose_lease_is_lost() {
    on_memory(async |world| {
        let (a, b) = (world.worker("a", Policy::new()), world.worker("b", Policy::new()));
        a.store.pass(StoreOperation::Claim, 1);
        a.store.hang(StoreOperation::Claim, 2);
        a.store.fail_before(StoreOperation::Renew, FOREVER);
        let started = Arc::new(Mutex::new(Vec::new()));
        let batch = tokio::spawn({
            let (a, started) = (a.clone(), started.clone());
            async move {
                let handler = PlainHandler::batch(move |items: Vec<BatchItem<&'static str>>| async move {
                    started.lock().unwrap().extend(items.iter().map(|given| (given.item, given.lease.is_lost())));
                    items.iter().map(|_| Ok::<_, AppError>(1u32)).collect()
                });
                let short = Call::new(id("short")).policy(Policy::new().lease(secs(1)));
                a.executor.run_batch(vec![(short, "short"), (Call::new(id("long")), "long")], handler).await.len()
            }
        });
        world.clock.advance(secs(2)).await;
        let job = Job::takes(secs(60));
        let _b = b.spawn("short", &job).await;
        assert_eq!(job.runs(), 1, "taken over");
        world.clock.advance(secs(58)).await;
        assert_eq!(batch.await.unwrap(), 2);
        let started = started.lock().unwrap().clone();
        assert!(!started.contains(&("short", true)), "handed to the handler while B runs it: {started:?}");
    });
}

#[test]
fn a_batch_does_not_start_after_a_drain_has_closed() {
    on_memory(async |world| {
        let a = world.worker("a", Policy::new());
        a.store.pass(StoreOperation::Claim, 1);
        a.store.hang(StoreOperation::Claim, 2);
        let started = Arc::new(AtomicU32::new(0));
        let batch = tokio::spawn({
            let (a, started) = (a.clone(), started.clone());
            async move {
                let handler = PlainHandler::batch(move |items: Vec<BatchItem<u8>>| async move {
                    started.fetch_add(1, SeqCst);
                    items.iter().map(|_| Ok::<_, AppError>(1u32)).collect()
                });
                a.executor.run_batch(vec![(Call::new(id("one")), 1), (Call::new(id("two")), 2)], handler).await.len()
            }
        });
        world.clock.advance(secs(1)).await;
        let drain = a.drain(secs(5));
        world.clock.advance(secs(60)).await;
        assert_eq!(batch.await.unwrap(), 2);
        drain.await.unwrap();
        assert_eq!(started.load(SeqCst), 0, "its handler had not started when the drain began");
    });
}

/// "Renewed every third of it": a claim that took a while is still renewed once before its guard.
#[test]
fn a_slow_claim_is_renewed_before_its_guard() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().lease(secs(3)));
        worker.store.delay_reply(StoreOperation::Claim, ms(900));
        let job = Job::takes(secs(1));
        let run = worker.spawn("k", &job).await;
        world.clock.advance(secs(10)).await;
        let outcome = run.await.unwrap().0;
        assert!(!world.asked(StoreOperation::Renew).is_empty(), "never renewed, ended as {outcome:?}");
        assert_eq!(outcome, Outcome::Ran);
    });
}

/// A single failed renewal must not end renewals, for any valid heartbeat.
#[test]
fn one_failed_renewal_does_not_end_a_run_with_a_slow_heartbeat() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().lease(secs(1)).heartbeat(ms(460)));
        worker.store.fail_before(StoreOperation::Renew, 1);
        let run = worker.spawn("k", &Job::takes(secs(3))).await;
        world.clock.advance(secs(5)).await;
        let outcome = run.await.unwrap().0;
        assert_eq!(outcome, Outcome::Ran, "asked at {:?}", world.asked(StoreOperation::Renew));
    });
}

/// One renewal for each heartbeat, not one for each wake-up of the driver.
#[test]
fn a_store_that_refuses_renewals_is_not_hammered() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().lease(ms(900)));
        worker.store.delay(StoreOperation::Renew, ms(1)); // a refused connection takes a ms; without it this test never ends
        worker.store.fail_before(StoreOperation::Renew, FOREVER);
        let _one = worker.spawn("one", &Job::takes(secs(60))).await;
        world.clock.advance(ms(175)).await;
        let _two = worker.spawn("two", &Job::takes(secs(60))).await;
        world.clock.advance(secs(2)).await;
        let asked = world.asked(StoreOperation::Renew);
        assert!(asked.len() <= 8, "2 leases, 4 turns each at most: {} at {asked:?}", asked.len());
    });
}

/// A heartbeat under way when the handler ends finds a consumed key: that is no lost lease.
#[test]
fn a_run_that_went_well_is_not_reported_as_lost() {
    on_memory(async |world| {
        let seen = Seen::default();
        let worker = world.worker_by("a", Policy::new().lease(secs(3)), |b| b.observer(seen.clone()));
        worker.store.delay(StoreOperation::Renew, ms(500));
        let run = worker.spawn("k", &Job::takes(ms(1200))).await;
        world.clock.advance(secs(5)).await;
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
        let seen = seen.0.lock().unwrap().clone();
        assert!(!seen.contains(&"lease lost".to_owned()), "{seen:?}");
    });
}

#[test]
fn a_lost_lease_is_reported_once() {
    on_memory(async |world| {
        let seen = Seen::default();
        let policy = Policy::new().lease(secs(3)).on_lease_lost(OnLeaseLost::Finish);
        let worker = world.worker_by("a", policy, |b| b.observer(seen.clone()));
        let run = worker.spawn("k", &Job::takes(secs(8))).await;
        // An operator takes the key away.
        let record = world.record("k").await.unwrap();
        let admin = idempotent::Store::capabilities(&world.store).admin.unwrap();
        admin.forget(&crate::common::key_of("k"), record.fencing, true, secs(60)).await.unwrap();
        world.clock.advance(secs(10)).await;
        let _ = run.await.unwrap();
        assert_eq!(seen.count("lease lost"), 1);
    });
}

#[test]
fn a_drain_drops_an_unprotected_handler_too() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().on_store_error(OnStoreError::RunUnprotected));
        worker.store.down();
        let job = Job::takes(secs(1_000_000));
        let _run = worker.spawn("k", &job).await;
        world.clock.advance(secs(1)).await;
        assert_eq!(job.runs(), 1);
        let drain = worker.drain(secs(5));
        world.clock.advance(secs(3600)).await;
        assert!(drain.is_finished(), "an hour after a grace of 5 s");
    });
}

#[test]
fn nothing_starts_unprotected_once_a_drain_began() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().on_store_error(OnStoreError::RunUnprotected));
        worker.store.hang(StoreOperation::Claim, FOREVER);
        let job = Job::takes(ms(0));
        let _run = worker.spawn("k", &job).await;
        let drain = worker.drain(secs(5));
        world.clock.advance(secs(3600)).await;
        drain.await.unwrap();
        assert_eq!(job.runs(), 0, "started although draining");
    });
}

/// The process exits a second after the grace period.
#[test]
fn a_drain_ends_soon_after_its_grace_though_the_store_hangs() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        worker.store.hang(StoreOperation::Complete, FOREVER);
        let _run = worker.spawn("k", &Job::takes(ms(100))).await;
        world.clock.advance(ms(200)).await;
        let drain = worker.drain(secs(5));
        world.clock.advance(secs(6)).await;
        assert!(drain.is_finished(), "grace 5 s, and still not done after 6 s");
    });
}

/// A takeover is visible even if no limit makes the store count attempts.
#[test]
fn a_claim_taken_back_unheard_does_not_hide_what_it_took_over() {
    on_memory(async |world| {
        let [dead, deaf, last] = ["a", "b", "c"].map(|name| world.worker(name, Policy::new()));
        let run = dead.spawn("k", &Job::takes(secs(600))).await;
        dead.kill(run).await;
        world.clock.advance(secs(31)).await;
        deaf.store.lose_reply(StoreOperation::Claim, FOREVER);
        let run = deaf.spawn("k", &Job::takes(ms(0))).await;
        world.clock.advance(secs(31)).await;
        assert!(matches!(run.await.unwrap().0, Outcome::StoreDown(_)), "nothing ran");
        let told = last.executor.run(
            Call::new(id("k")),
            PlainHandler::new(|| async {
                Ok::<_, AppError>(idempotent::Lease::current().is_some_and(|lease| lease.taken_over().is_some()))
            }),
        );
        assert!(told.await.unwrap(), "the run of the dead worker may have had its effect");
    });
}

#[test]
fn a_release_with_a_lost_response_is_done() {
    for (policy, outcome) in [(Policy::new(), "released"), (Policy::new().max_retries(0), "dead")] {
        on_memory(async |world| {
            let worker = world.worker("a", policy);
            worker.store.lose_reply(StoreOperation::Release, 1);
            let run = worker.spawn("k", &Job::ends(ms(0), End::Err)).await;
            world.clock.advance(secs(1)).await;
            assert_eq!(run.await.unwrap().0.name(), outcome, "nobody took over");
        });
    }
}

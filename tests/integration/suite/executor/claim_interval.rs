//! Duplicates of keys in flight that an executor defers without a claim.
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use idempotent::{Call, Fingerprint, OnInFlight, Outcome, Policy};
use idempotent_testkit::{FOREVER, StoreOperation};

use crate::common::{Job, Worker, World, assert_in_flight, batch_of, id, key_of, ms, on_memory, secs};

const INTERVAL: Duration = ms(100);

impl World {
    /// Creates a worker that claims a key in flight at most every 100 ms.
    fn sparing(&self, name: &str, policy: Policy) -> Worker {
        self.worker_by(name, policy, |builder| builder.claim_interval(INTERVAL))
    }

    /// Returns the times of the claims of this key, in ms.
    fn claims_of(&self, key: &str) -> Vec<u128> {
        let hash = Some(key_of(key).hash());
        let calls = self.store.log();
        let claims = calls.iter().filter(|call| call.verb == StoreOperation::Claim && call.key == hash);
        claims.map(|call| call.started.as_millis()).collect()
    }
}

fn on_memory_spared<F: Future<Output = ()>>(test: impl FnOnce(World, Worker, Worker) -> F) {
    on_memory(|world| {
        let (a, b) = (world.sparing("a", Policy::new()), world.sparing("b", Policy::new()));
        test(world, a, b)
    });
}

#[test]
fn a_thousand_duplicates_during_a_run_send_no_claim() {
    on_memory_spared(|world, a, _| async move {
        let job = Job::takes(secs(10));
        let run = a.spawn("k", &job).await;
        for outcome in join_all((0..1_000).map(|_| a.outcome("k", &job))).await {
            assert_in_flight(&outcome);
        }
        assert_eq!(world.claims_of("k").len(), 1);
        world.clock.advance(secs(10)).await;
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
        assert_eq!(a.outcome("k", &job).await, Outcome::Replayed);
        assert_eq!((world.claims_of("k").len(), job.runs()), (2, 1));
    });
}

#[test]
fn equal_calls_during_a_claim_wait_for_its_answer() {
    on_memory_spared(|world, a, _| async move {
        a.store.delay(StoreOperation::Claim, ms(20));
        let job = Job::takes(secs(10));
        let mut calls = Vec::new();
        for _ in 0..1_000 {
            let (a, job) = (a.clone(), job.clone());
            calls.push(tokio::spawn(async move { a.outcome("k", &job).await }));
        }
        world.clock.advance(ms(20)).await;
        assert_eq!((world.claims_of("k").len(), job.runs()), (1, 1));
        assert_eq!(calls.iter().filter(|call| call.is_finished()).count(), 999, "only the run goes on");
        world.clock.advance(secs(10)).await;
        for call in calls {
            call.await.unwrap();
        }
    });
}

#[test]
fn a_claim_that_hangs_holds_back_equal_calls_for_one_interval_only() {
    on_memory_spared(|world, a, _| async move {
        // The store grants the hanging claim, and never answers it.
        a.store.hang(StoreOperation::Claim, 1);
        let job = Job::takes(secs(1));
        let hanging = a.spawn("k", &job).await;
        let next = a.spawn("k", &job).await;
        world.clock.advance(INTERVAL - ms(1)).await;
        assert_eq!(world.claims_of("k").len(), 1);
        world.clock.advance(ms(1)).await;
        assert_eq!(world.claims_of("k").len(), 2, "the second call asks the store itself");
        assert_in_flight(&next.await.unwrap().0);
        hanging.abort();
    });
}

#[test]
fn waiting_duplicates_of_a_run_send_no_claim_and_get_its_result() {
    on_memory(|world| async move {
        let waits = Policy::new().on_in_flight(OnInFlight::Wait(secs(20)));
        let (a, job) = (world.sparing("a", waits), Job::takes(secs(10)));
        let run = a.spawn("k", &job).await;
        let mut waiting = Vec::new();
        for _ in 0..100 {
            waiting.push(a.spawn("k", &job).await);
        }
        world.clock.advance(secs(10) - ms(1)).await;
        assert_eq!(world.claims_of("k").len(), 1);
        world.clock.advance(ms(1)).await;
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
        for call in waiting {
            let (outcome, answer) = call.await.unwrap();
            assert_eq!((outcome, answer.unwrap()), (Outcome::Replayed, 1));
        }
    });
}

#[test]
fn a_waiting_duplicate_of_another_process_is_woken_by_the_settlement() {
    on_memory(|world| async move {
        let waits = Policy::new().on_in_flight(OnInFlight::Wait(secs(20)));
        let (a, b) = (world.sparing("a", waits), world.sparing("b", waits));
        let job = Job::takes(secs(10));
        let run = a.spawn("k", &job).await;
        let waiting = [b.spawn("k", &job).await, b.spawn("k", &job).await, b.spawn("k", &job).await];
        world.clock.advance(secs(10) + INTERVAL).await;
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
        assert!(waiting.iter().all(tokio::task::JoinHandle::is_finished));
        for call in waiting {
            assert_eq!(call.await.unwrap().0, Outcome::Replayed);
        }
    });
}

#[test]
fn the_answer_of_the_store_counts_for_one_interval() {
    on_memory_spared(|world, a, b| async move {
        let job = Job::takes(secs(1));
        let run = a.spawn("k", &job).await;
        for _ in 0..3 {
            assert_in_flight(&b.outcome("k", &job).await);
        }
        assert_eq!(world.claims_of("k").len(), 2, "one of each worker");
        world.clock.advance(secs(1)).await;
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
        assert_eq!(b.outcome("k", &job).await, Outcome::Replayed);

        let run = a.spawn("l", &job).await;
        world.clock.advance(secs(1) - ms(1)).await;
        assert_in_flight(&b.outcome("l", &job).await);
        world.clock.advance(ms(1)).await;
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
        assert_in_flight(&b.outcome("l", &job).await);
        world.clock.advance(INTERVAL - ms(1)).await;
        assert_eq!(b.outcome("l", &job).await, Outcome::Replayed);
    });
}

#[test]
fn a_hot_key_in_four_processes_is_claimed_at_most_40_times_a_second() {
    on_memory(|world| async move {
        let workers: Vec<_> = (0..4).map(|nth| world.sparing(&nth.to_string(), Policy::new())).collect();
        let (hot, other) = (Job::takes(secs(60)), Job::takes(Duration::ZERO));
        let run = workers[0].spawn("hot", &hot).await;
        // 1,000 deliveries a second to random workers, of which 300 have the same key.
        for nth in 0..5_000_usize {
            let worker = &workers[nth * 7 % 13 % 4];
            if nth % 10 < 3 {
                assert_in_flight(&worker.outcome("hot", &hot).await);
            } else {
                assert_eq!(worker.outcome(&nth.to_string(), &other).await, Outcome::Ran);
            }
            world.clock.advance(ms(1)).await;
        }
        let claims = world.claims_of("hot");
        let mut per_second = [0; 6];
        for at in &claims {
            per_second[usize::try_from(at / 1_000).unwrap()] += 1;
        }
        assert!(per_second.iter().all(|claims| *claims <= 40), "{per_second:?}");
        assert!(claims.len() > 60, "the other three workers ask again: {per_second:?}");
        run.abort();
    });
}

#[test]
fn a_run_whose_lease_may_have_ended_defers_nothing() {
    on_memory(|world| async move {
        let finishes = Policy::new().on_lease_lost(idempotent::OnLeaseLost::Finish);
        let (a, job) = (world.sparing("a", finishes), Job::takes(secs(60)));
        let run = a.spawn("k", &job).await;
        a.store.fail_before(StoreOperation::Renew, FOREVER);
        world.clock.advance(secs(26)).await;
        assert_in_flight(&a.outcome("k", &job).await);
        assert_eq!(world.claims_of("k").len(), 1);
        // The guard of the lease ends after 27 s, and the lease in the store after 30 s.
        world.clock.advance(secs(2)).await;
        assert_in_flight(&a.outcome("k", &job).await);
        assert_eq!(world.claims_of("k").len(), 2);
        world.clock.advance(secs(3)).await;
        a.store.heal();
        let takeover = a.spawn("k", &job).await;
        assert_eq!(job.runs(), 2);
        world.clock.advance(secs(29)).await;
        assert!(run.is_finished());
        let claims = world.claims_of("k").len();
        assert_in_flight(&a.outcome("k", &job).await);
        assert_eq!(world.claims_of("k").len(), claims, "the end of the first run leaves the second one registered");
        takeover.abort();
    });
}

#[test]
fn a_settlement_that_is_not_answered_yet_defers_nothing() {
    on_memory_spared(|world, a, _| async move {
        let job = Job::takes(secs(1));
        a.store.delay_reply(StoreOperation::Complete, secs(2));
        let run = a.spawn("k", &job).await;
        world.clock.advance(secs(1)).await;
        assert!(!run.is_finished());
        assert_eq!(a.outcome("k", &job).await, Outcome::Replayed);
        world.clock.advance(secs(2)).await;
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
    });
}

#[test]
fn another_payload_is_compared_by_the_store() {
    on_memory_spared(|world, a, b| async move {
        let call = |payload: &str| Call::new(id("k")).fingerprint(Ok(Fingerprint::of_bytes(payload)));
        let job = Job::takes(secs(10));
        let (first, own) = (a.clone(), job.clone());
        let run = tokio::spawn(async move { first.deliver_call(call("1"), &own).await.0 });
        world.clock.settle().await;
        for worker in [&a, &b, &a, &b] {
            assert_eq!(worker.deliver_call(call("2"), &job).await.0, Outcome::Mismatch);
            assert_in_flight(&worker.deliver_call(call("1"), &job).await.0);
            assert_in_flight(&worker.outcome("k", &job).await);
        }
        run.abort();
    });
}

#[test]
fn a_failed_run_frees_its_key_at_once() {
    on_memory(|world| async move {
        let retries = Policy::new().max_retries(9).retry_delay(ms(1)).release_on_cancel(true);
        let (a, job) = (world.sparing("a", retries), Job::ends(secs(1), crate::common::End::Err));
        let run = a.spawn("k", &job).await;
        assert_in_flight(&a.outcome("k", &job).await);
        world.clock.advance(secs(1)).await;
        assert_eq!(run.await.unwrap().0.name(), "released");
        let cancelled = a.spawn("k", &job).await;
        assert_eq!(job.runs(), 2);
        cancelled.abort();
        world.clock.settle().await;
        let run = a.spawn("k", &job).await;
        assert_eq!(job.runs(), 3);
        run.abort();
    });
}

#[test]
fn items_of_a_batch_with_known_keys_send_no_claim() {
    on_memory_spared(|world, a, _| async move {
        let job = Job::takes(secs(10));
        let run = a.spawn("1", &job).await;
        let handler = batch_of(|item: u32| Ok(item));
        let items = [("1", 1), ("2", 2), ("1", 3), ("3", 4)].map(|(key, item)| (Call::new(id(key)), item));
        let outputs = a.executor.run_batch(items.into(), handler).await;
        let names: Vec<_> = outputs.iter().map(|output| output.outcome.name()).collect();
        assert_eq!(names, ["in_flight", "ran", "in_flight", "ran"]);
        assert_eq!(["1", "2", "3"].map(|key| world.claims_of(key).len()), [1, 1, 1]);
        assert_eq!(a.outcome("2", &Arc::new(Job::default())).await, Outcome::Replayed);
        run.abort();
    });
}

#[test]
fn without_an_interval_each_duplicate_is_claimed() {
    on_memory(|world| async move {
        let (a, job) = (world.worker("a", Policy::new()), Job::takes(secs(10)));
        let run = a.spawn("k", &job).await;
        for _ in 0..5 {
            assert_in_flight(&a.outcome("k", &job).await);
        }
        assert_eq!(world.claims_of("k").len(), 6);
        run.abort();
    });
}

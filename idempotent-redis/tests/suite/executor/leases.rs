//! Leases: which worker may run, and what happens to a worker that stalls or is overtaken.
use std::sync::Arc;

use idempotent_core::{
    ClaimHandle, Disposition, FencingToken, OnLeaseLost, Outcome, Policy, Settled, State, StateKind, Store, SystemClock,
};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use idempotent_testkit::{FOREVER, FaultStore, StoreOperation};

use crate::support::runs::{
    AppError, End, Job, Worker, assert_in_flight, lease_end, raw, record, secs, time_of, until_time,
};
use crate::support::{calls, key, open, open_without_cache, until};

/// A claim in flight does not allow a second run, and a rejected duplicate deletes nothing.
#[tokio::test]
async fn a_duplicate_of_a_run_in_flight_costs_one_command_and_is_deferred() {
    let server = RedisServer::start();
    let (a, b) = (Worker::new(open(&server).await, Policy::new()), Worker::new(open(&server).await, Policy::new()));
    let job = Job::held();
    let run = a.begin("k", &job).await;
    let (before, held) = (calls(&server, "evalsha"), raw(&server, "k"));
    let duplicate = b.outcome("k", &job).await;
    assert_in_flight(&duplicate);
    assert_eq!(calls(&server, "evalsha"), before + 1, "at once: nothing is waited for, nothing is asked twice");
    let Disposition::Retry { after } = duplicate.disposition() else { panic!("{duplicate:?}") };
    assert!(after <= secs(1), "a short handler costs its duplicate little");
    assert_eq!(raw(&server, "k"), held);
    job.end(End::Ok);
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert_eq!(b.outcome("k", &job).await.disposition(), Disposition::Ack);
    assert_eq!(job.runs(), 1);
}

#[tokio::test]
async fn an_interrupted_run_leaves_its_key_claimable() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    let worker = Worker::new(store.clone(), Policy::new().lease(secs(3)));
    // A panic frees the key at once, and the process continues.
    let panics = Job::ends(End::Panic);
    assert!(worker.spawn("panics", &panics).await.unwrap_err().is_panic());
    assert_eq!(worker.outcome("panics", &Job::quick()).await, Outcome::Ran);

    for how in ["dropped", "out of time"] {
        let slow = Job::held();
        if how == "dropped" {
            let run = worker.begin(how, &slow).await;
            run.abort();
            run.await.unwrap_err();
        } else {
            // The handler has started when the time is up.
            let begun = async { slow.begun(1).await };
            tokio::select! {
                () = begun => {}
                ended = worker.deliver(how, &slow) => panic!("{ended:?}"),
            }
        }
        let end = lease_end(&store, how).await;
        let again = Job::quick();
        let (outcome, deferred) = worker.redeliver(how, &again).await;
        assert_eq!((outcome, again.attempts()), (Outcome::Ran, vec![2]), "{how}");
        assert!(deferred > 0 && again.fencing()[0].0 >= end, "{how}: not before the lease's end");
    }
    assert_eq!(worker.executor.counts().of("abandoned"), 2);
}

/// A handler that runs longer than its lease is not run twice. One failed renewal does not end the renewals.
#[tokio::test]
async fn renewals_keep_a_long_run_alive_even_after_a_failed_renewal() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address()).await;
    let far = RedisStore::connect(proxy.url()).await.unwrap();
    let near = open_without_cache(&server).await;
    let policy = Policy::new().lease(secs(6)).heartbeat(secs(1));
    let (a, b) = (Worker::new(far, policy), Worker::new(near.clone(), policy));
    let job = Job::held();
    let run = a.begin("k", &job).await;
    let first = lease_end(&near, "k").await;
    // From now on the connection carries only renewals, and the second one is cut off.
    until("a renewal", async || lease_end(&near, "k").await > first).await;
    proxy.fail_next_with(key("k").as_str(), Fault::CutBeforeSend);
    while time_of(&server) < first + 1_000_000 {
        assert_in_flight(&b.outcome("k", &job).await);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!((proxy.met(), a.failed("renew")), (1, 1), "one renewal failed");
    job.end(End::Ok);
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert_eq!(b.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
}

/// Returns a store whose renewals do not get through.
fn stuck(store: &RedisStore) -> FaultStore {
    let store = FaultStore::on_clock(store.clone(), Arc::new(SystemClock::new()));
    store.lose_request(StoreOperation::Renew, FOREVER);
    store
}

/// A runs for longer than its lease, and B takes over. The end of A must not affect B's record, and C is deferred.
#[tokio::test]
async fn an_owner_that_lost_its_lease_neither_deletes_nor_succeeds() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    for ends in [End::Err, End::Ok] {
        let part = format!("{ends:?}");
        let policy = Policy::new().lease(secs(3)).on_lease_lost(OnLeaseLost::Finish);
        let (a, b) = (Worker::new(stuck(&store), policy), Worker::new(open(&server).await, policy));
        let c = Worker::new(open(&server).await, policy);
        let (first, second) = (Job::held(), Job::held());
        let run_a = a.begin(&part, &first).await;
        let end = lease_end(&store, &part).await;
        until_time(&server, end).await;
        let run_b = b.begin(&part, &second).await;
        first.end(ends);
        // Worker A learns that it lost its lease.
        let (outcome, answer) = run_a.await.unwrap();
        assert_eq!(outcome, Outcome::LeaseLost);
        assert!(answer.is_err(), "told as success: {answer:?}");
        assert_in_flight(&c.outcome(&part, &second).await);
        second.end(End::Ok);
        assert_eq!(run_b.await.unwrap().0, Outcome::Ran);
        // A's message is redelivered and ends as a duplicate.
        assert!(matches!(outcome.disposition(), Disposition::Retry { .. }));
        assert_eq!(c.outcome(&part, &second).await, Outcome::Replayed);
        assert_eq!((first.runs(), second.runs()), (1, 1));
        assert!(second.fencing() > first.fencing());
    }
}

/// Renewals end, and so does a handler whose renewals do not get through.
#[tokio::test]
async fn a_handler_that_outlives_its_lease_is_dropped() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    let worker = Worker::new(stuck(&store), Policy::new().lease(secs(1)));
    let (outcome, answer) = worker.deliver("k", &Job::held()).await;
    assert_eq!(outcome, Outcome::LeaseLost);
    assert!(matches!(answer, Err(AppError::Idempotent(idempotent_core::Rejection::LeaseLost))), "{answer:?}");
    // The record is left to its lease: the next run starts when the lease expires.
    let (end, next) = (lease_end(&store, "k").await, Job::quick());
    let (outcome, _) = Worker::new(store.clone(), Policy::new()).redeliver("k", &next).await;
    assert_eq!((outcome, next.attempts()), (Outcome::Ran, vec![2]));
    assert!(next.fencing()[0].0 >= end, "{} µs early", end - next.fencing()[0].0);

    let short = Policy::new().lease(secs(1)).max_run(secs(2));
    assert_eq!(Worker::new(store, short).outcome("long", &Job::held()).await, Outcome::LeaseLost, "after max_run");
}

/// A's completion is stale, and B is killed as well.
#[tokio::test]
async fn a_stale_completion_is_refused_and_nothing_is_lost() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    let policy = Policy::new().lease(secs(3)).on_lease_lost(OnLeaseLost::Finish);
    let a = Worker::new(stuck(&store), policy);
    let of_b = FaultStore::on_clock(store.clone(), Arc::new(SystemClock::new()));
    let (b, d) = (Worker::new(of_b.clone(), policy), Worker::new(open(&server).await, policy));
    let (first, second) = (Job::held(), Job::held());
    let run_a = a.begin("k", &first).await;
    let Some(State::Consuming { owner, until, .. }) = record(&store, "k").await.map(|found| found.state) else {
        panic!()
    };
    until_time(&server, until.0).await;
    let run_b = b.begin("k", &second).await;
    // After the kill, no command of B arrives.
    of_b.kill();
    run_b.abort();
    run_b.await.unwrap_err();
    let (b_end, b_record) = (lease_end(&store, "k").await, raw(&server, "k"));
    first.end(End::Ok);
    assert_eq!(run_a.await.unwrap().0, Outcome::LeaseLost);
    // A stale renewal of A fails as well, by number or by token alone.
    for fencing in [None, Some(first.fencing()[0])] {
        let stale = ClaimHandle { key: key("k"), owner, fencing, terms: None };
        let lost = Settled::Lost { now: StateKind::Consuming };
        assert_eq!(store.renew(&stale, secs(600)).await.unwrap(), lost);
    }
    assert_eq!(raw(&server, "k"), b_record, "B's record is as it was");

    let quick = Job::quick();
    let (outcome, deferred) = d.redeliver("k", &quick).await;
    assert_eq!(outcome, Outcome::Ran, "not lost");
    assert!(deferred > 0 && quick.fencing()[0].0 >= b_end, "and not early");
    assert_eq!(quick.attempts(), [3]);
}

/// B's number is higher than A's, whatever happened to the record in between.
#[tokio::test]
async fn fencing_numbers_rise_over_release_expiry_and_deletion() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    let mut numbers = Vec::new();
    for policy in [Policy::new(), Policy::new().max_retries(Policy::NO_LIMIT)] {
        let policy = policy.lease(secs(1));
        let (worker, job) = (Worker::new(store.clone(), policy), Job::ends(End::Err));
        for _ in 0..8 {
            assert!(matches!(worker.outcome("k", &job).await, Outcome::Released { .. }));
        }
        // After the kill, no command of the worker arrives, so its lease expires.
        let killed = FaultStore::on_clock(store.clone(), Arc::new(SystemClock::new()));
        let (dead, expired) = (Worker::new(killed.clone(), policy), Job::held());
        let run = dead.begin("k", &expired).await;
        killed.kill();
        run.abort();
        run.await.unwrap_err();
        let end = lease_end(&store, "k").await;
        let takeover = Job::ends(End::Err);
        assert!(matches!(worker.redeliver("k", &takeover).await.0, Outcome::Released { .. }));
        assert!(takeover.fencing()[0].0 >= end, "not before the lease's end");
        numbers.extend([job, expired, takeover].iter().flat_map(|job| job.fencing()));
        server.command(&["DEL", key("k").as_str()]);
    }
    assert_eq!(numbers.len(), 2 * (8 + 1 + 1));
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert!(numbers.iter().all(|number| *number < FencingToken(1 << 53)));
}

#[test]
fn a_blocked_handler_keeps_its_key() {
    let server = RedisServer::start();
    idempotent_testkit::blocked_handler_keeps_its_key(async || open_without_cache(&server).await);
}

//! A reply that is lost after the server applied the call, at each step of a run. The run ends as without the loss, and
//! is counted once.
use idempotent_core::{ClaimHandle, Outcome, OwnerToken, Policy, State, StateKind, Store};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;

use crate::support::runs::{End, Job, Worker, lease_end, record, secs};
use crate::support::{key, open, open_without_cache, until};

const AFTER_APPLY: [Fault; 2] = [Fault::CutAfterApply, Fault::CutMidReply];

/// Creates a worker with a proxy, on a server with cached scripts, so that the lost reply is not about an unknown
/// script.
/// script.
async fn far(server: &RedisServer, policy: Policy) -> (Proxy, Worker) {
    let proxy = Proxy::start(&server.address()).await;
    let store = RedisStore::connect(proxy.url()).await.unwrap();
    store.renew(&ClaimHandle::unanswered(key("warm"), OwnerToken(1)), secs(1)).await.unwrap();
    let worker = Worker::new(store, policy);
    worker.outcome("warm", &Job::ends(End::Err)).await;
    worker.outcome("warm", &Job::quick()).await;
    (proxy, worker)
}

#[tokio::test]
async fn a_claim_with_a_lost_reply_leads_to_one_run() {
    let server = RedisServer::start();
    for fault in AFTER_APPLY {
        let part = format!("{fault:?}");
        let (proxy, worker) = far(&server, Policy::new()).await;
        proxy.fail_next_with(key(&part).as_str(), fault);
        let job = Job::quick();
        assert_eq!(worker.outcome(&part, &job).await, Outcome::Ran);
        assert_eq!((proxy.met(), worker.failed("claim")), (1, 1));
        assert_eq!((job.runs(), job.attempts()), (1, vec![1]));
    }
}

#[tokio::test]
async fn a_completion_with_a_lost_reply_is_recorded_and_its_duplicate_replayed() {
    let server = RedisServer::start();
    for fault in AFTER_APPLY {
        let part = format!("{fault:?}");
        let (proxy, worker) = far(&server, Policy::new()).await;
        let job = Job::held();
        let run = worker.begin(&part, &job).await;
        proxy.fail_next_with(key(&part).as_str(), fault);
        job.end(End::Ok);
        let (outcome, answer) = run.await.unwrap();
        assert_eq!((outcome, answer.unwrap()), (Outcome::Ran, 1), "not told as lost to somebody else");
        assert_eq!((proxy.met(), worker.failed("complete")), (1, 1));
        assert_eq!(Worker::new(open(&server).await, Policy::new()).outcome(&part, &job).await, Outcome::Replayed);
        assert_eq!(job.runs(), 1);
    }
}

#[tokio::test]
async fn a_release_with_a_lost_reply_is_applied_once_and_is_no_lost_lease() {
    let server = RedisServer::start();
    let near = open_without_cache(&server).await;
    for fault in AFTER_APPLY {
        for (remembered, policy) in [(true, Policy::new()), (false, Policy::new().max_retries(Policy::NO_LIMIT))] {
            let part = format!("{fault:?} {remembered}");
            let (proxy, worker) = far(&server, policy).await;
            let job = Job::held();
            let run = worker.begin(&part, &job).await;
            proxy.fail_next_with(key(&part).as_str(), fault);
            job.end(End::Err);
            let (outcome, _) = run.await.unwrap();
            assert!(matches!(outcome, Outcome::Released { .. }), "{outcome:?}");
            assert_eq!((proxy.met(), worker.failed("release")), (1, 1));
            let left = record(&near, &part).await;
            assert_eq!(left.is_some(), remembered);
            assert!(left.is_none_or(|left| left.attempt == 1 && left.state.kind() == StateKind::Vacant));
            let again = Job::quick();
            assert_eq!(worker.outcome(&part, &again).await, Outcome::Ran);
            assert_eq!(again.attempts(), [if remembered { 2 } else { 1 }]);
        }
    }
}

#[tokio::test]
async fn a_last_attempt_with_a_lost_reply_is_dead_once() {
    let server = RedisServer::start();
    let (proxy, worker) = far(&server, Policy::new().max_retries(0)).await;
    let job = Job::held();
    let run = worker.begin("k", &job).await;
    proxy.fail_next_with(key("k").as_str(), Fault::CutAfterApply);
    job.end(End::Err);
    let (outcome, _) = run.await.unwrap();
    assert_eq!((proxy.met(), &outcome), (1, &Outcome::Dead { fencing: job.fencing()[0] }));
    assert_eq!(worker.outcome("k", &job).await, outcome, "copies of the dead letter collapse");
}

#[tokio::test]
async fn a_renewal_with_a_lost_reply_is_no_lost_lease() {
    let server = RedisServer::start();
    let near = open_without_cache(&server).await;
    for fault in AFTER_APPLY {
        let part = format!("{fault:?}");
        let (proxy, worker) = far(&server, Policy::new().lease(secs(6)).heartbeat(secs(1))).await;
        let job = Job::held();
        let run = worker.begin(&part, &job).await;
        let first = lease_end(&near, &part).await;
        proxy.fail_next_with(key(&part).as_str(), fault);
        until("the renewal gets lost", async || worker.failed("renew") == 1).await;
        assert_eq!(proxy.met(), 1);
        // The renewal was applied, and the next one follows.
        let second = lease_end(&near, &part).await;
        assert!(second > first);
        until("the next renewal", async || lease_end(&near, &part).await > second).await;
        assert!(!run.is_finished());
        job.end(End::Ok);
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
        let found = record(&near, &part).await.unwrap();
        assert!(matches!(found.state, State::Consumed { .. }) && found.attempt == 1);
        assert_eq!((job.runs(), job.attempts()), (1, vec![1]));
    }
}

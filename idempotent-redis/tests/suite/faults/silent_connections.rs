//! Connections that stay open without traffic, and slow ones: no call hangs, and the next connection is used.
use std::time::Duration;

use idempotent_core::{ClaimHandle, Outcome, Policy, Settled, Store, StoreErrorKind};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use tokio::task::JoinSet;

use crate::support::runs::{Job, Worker, ms, secs};
use crate::support::{ask, calls, consume, done, granted, hold, key, until};

/// Limit for every step of these tests.
const PATIENCE: Duration = Duration::from_secs(60);

async fn far(server: &RedisServer, response: Duration) -> (Proxy, RedisStore) {
    let proxy = Proxy::start(&server.address()).await;
    let builder = RedisStore::builder(proxy.url()).response_timeout(response);
    let store = builder.cache(None).connect().await.unwrap();
    consume(&store, &format!("warm {}", proxy.port()), None).await;
    (proxy, store)
}

async fn answered<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, call).await.expect("it hangs")
}

#[tokio::test]
async fn a_half_open_connection_times_out_as_ambiguous_and_is_closed() {
    let server = RedisServer::start();
    for fault in [Fault::HalfOpen, Fault::HalfOpenAfterApply] {
        let (proxy, store) = far(&server, secs(1)).await;
        let part = format!("{fault:?}");
        proxy.fail_next_with(key(&part).as_str(), fault);
        let error = answered(store.claim(&ask(&part, 1))).await.unwrap_err();
        assert_eq!((error.kind(), proxy.met()), (StoreErrorKind::Ambiguous, 1), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&proxy.address()) && text.contains("did not answer within the response timeout of 1s"),
            "{text}"
        );
        let before = proxy.passed().connections;
        let grant = granted(answered(store.claim(&ask(&part, 1))).await.unwrap());
        assert_eq!((grant.attempt, proxy.passed().connections), (1, before + 1), "over a connection of its own");
    }
}

/// Callers that give up after a third of a lease never notice that the connection is dead. It is closed nevertheless.
#[tokio::test]
async fn a_half_open_connection_is_closed_even_if_every_caller_gives_up_sooner() {
    let server = RedisServer::start();
    let (proxy, store) = far(&server, secs(1)).await;
    proxy.fail_next_with(key("k").as_str(), Fault::HalfOpen);
    let impatient = |owner| {
        let (store, request) = (store.clone(), ask("k", owner));
        async move { tokio::time::timeout(ms(100), store.claim(&request)).await }
    };
    assert!(impatient(1).await.is_err(), "no answer in time");
    assert_eq!(proxy.met(), 1);
    until("a caller as impatient is answered", async || impatient(1).await.is_ok_and(|claim| claim.is_ok())).await;

    // Gives up like an executor.
    let (proxy, store) = far(&server, secs(2)).await;
    let worker = Worker::new(store, Policy::new().lease(secs(3)));
    proxy.fail_next_with(key("run").as_str(), Fault::HalfOpen);
    let job = Job::quick();
    until("the run", async || answered(worker.outcome("run", &job)).await == Outcome::Ran).await;
    assert_eq!((proxy.met(), job.runs(), job.attempts()), (1, 1, vec![1]));
}

/// A connection that takes longer than any caller waits is established nevertheless, once.
#[tokio::test]
async fn a_connection_is_established_even_if_every_caller_gives_up() {
    let server = RedisServer::start();
    let (proxy, store) = far(&server, secs(20)).await;
    proxy.delay_all(ms(300));
    proxy.cut_all();
    let before = proxy.passed().connections;
    for owner in 1..=10 {
        let request = ask(&format!("hasty {owner}"), owner);
        // The first call may fail with the old connection.
        let told = tokio::time::timeout(ms(30), store.claim(&request)).await;
        assert!(!matches!(told, Ok(Ok(_))), "{told:?}");
    }
    granted(answered(store.claim(&ask("patient", 1))).await.unwrap());
    assert_eq!(proxy.passed().connections, before + 1);
}

#[tokio::test]
async fn callers_fail_while_the_network_is_down_and_succeed_afterwards() {
    let server = RedisServer::start();
    let (proxy, store) = far(&server, secs(1)).await;
    proxy.silence();
    let mut callers = JoinSet::new();
    for owner in 1..=50_u128 {
        let store = store.clone();
        callers.spawn(async move { store.claim(&ask(&format!("k{owner}"), owner)).await });
    }
    for told in answered(callers.join_all()).await {
        let kind = told.unwrap_err().kind();
        assert!(matches!(kind, StoreErrorKind::Ambiguous | StoreErrorKind::NotApplied), "{kind:?}");
    }
    // No new connection is possible either, and a waiter does not hang.
    let error = answered(store.peek(&key("k1"))).await.unwrap_err();
    assert!(error.is_worth_a_retry(), "{error}");
    proxy.speak();
    until("the store is back", async || answered(store.peek(&key("k1"))).await.is_ok()).await;
    for owner in 1..=50 {
        granted(store.claim(&ask(&format!("k{owner}"), owner)).await.unwrap());
    }
}

#[tokio::test]
async fn a_slow_connection_is_not_closed() {
    let server = RedisServer::start();
    let (proxy, store) = far(&server, secs(20)).await;
    proxy.delay_all(ms(60));
    let (worker, job) = (Worker::new(store, Policy::new()), Job::quick());
    assert_eq!(answered(worker.outcome("k", &job)).await, Outcome::Ran);
    assert_eq!(answered(worker.outcome("k", &job)).await, Outcome::Replayed);
    assert_eq!((worker.failed("claim"), worker.failed("complete"), job.runs()), (0, 0, 1));
}

/// The call is repeated with the same token, and the first copy arrives later.
#[tokio::test]
async fn a_call_that_arrives_after_its_timeout_has_no_effect() {
    let server = RedisServer::start();
    let (proxy, store) = far(&server, secs(1)).await;
    let seen = calls(&server, "evalsha");
    proxy.fail_next_with(key("k").as_str(), Fault::Delay(secs(4)));
    let error = answered(store.claim(&ask("k", 1))).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Ambiguous, "{error}");
    // Without the terms, the completion is a script on each server.
    let held = ClaimHandle { terms: None, ..hold(&store, "k", 1).await };
    assert_eq!(store.complete(&held, &done(Some(b"v"))).await.unwrap(), Settled::Done);
    let written = crate::support::runs::raw(&server, "k");
    until("the late copy is on its way", async || proxy.met() == 1).await;
    // The script and its own command: the first claim, the completion, and the late copy.
    until("the server has seen it", async || calls(&server, "evalsha") >= seen + 3).await;
    assert_eq!(crate::support::runs::raw(&server, "k"), written);
    assert!(matches!(store.claim(&ask("k", 2)).await.unwrap(), idempotent_core::Claim::Consumed(_)));
}

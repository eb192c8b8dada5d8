//! Unavailable stores.
use std::time::Duration;

use idempotent_core::Executor;
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::RedisServer;
use idempotent_tower::IdempotencyLayer;

use crate::sockets::support::shop::principal;
use crate::sockets::support::stores::redis;
use crate::sockets::support::{Answer, Ask, Client, Server, until};

/// The store timeout of these servers.
const WAIT: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(3);

/// The faults of a reply.
const FAULTS: [Fault; 5] =
    [Fault::CutBeforeSend, Fault::CutAfterApply, Fault::CutMidReply, Fault::HalfOpen, Fault::HalfOpenAfterApply];

async fn server(url: &str) -> Server {
    let executor = redis(url, WAIT).await;
    let layer = IdempotencyLayer::new(executor.clone(), principal()).lease(LEASE);
    Server::of(executor, layer).await
}

#[track_caller]
fn unavailable(answer: &Answer) {
    answer.is(503, "store-unavailable");
    answer.retry_after();
}

/// After the outage, an order with this key runs once.
async fn works_again(server: &Server, client: &mut Client, key: &str, sku: &str) {
    let mut answer = client.ask(&Ask::order(key, sku)).await;
    until("the store is back", async || {
        if answer.status == 201 {
            return true;
        }
        // 409 if the claim of a request that received 503 arrived after all; it expires with its lease.
        assert!(matches!(answer.status, 503 | 409), "{answer}");
        answer = client.ask(&Ask::order(key, sku)).await;
        false
    })
    .await;
    let order = answer.made();
    assert_eq!(client.ask(&Ask::order(key, sku)).await.replayed(), order);
    assert_eq!(server.shop.count(sku), 1);
}

/// Orders during an outage of the store at this address, and after it.
async fn is_503_without_a_run(url: &str, keys: &[&str], goes: impl FnOnce(), returns: impl FnOnce()) {
    let server = server(url).await;
    let mut client = Client::connect(server.address).await;
    client.ask(&Ask::order("before", "before")).await.made();
    goes();
    for key in keys {
        unavailable(&client.ask(&Ask::order(key, "lamp")).await);
    }
    assert_eq!(server.shop.count("lamp"), 0);
    returns();
    works_again(&server, &mut client, "k0", "lamp").await;
}

const KEYS: [&str; 5] = ["k0", "k1", "k2", "k3", "k4"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_yields_503_without_a_run_until_it_restarts() {
    let store = RedisServer::start();
    is_503_without_a_run(&store.url(), &KEYS, || store.kill(), || store.restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_redis_yields_503_without_a_run_until_it_resumes() {
    let store = RedisServer::start();
    is_503_without_a_run(&store.url(), &["k0", "k0"], || store.pause(), || store.resume()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_redis_yields_503_without_a_run_until_it_is_reachable() {
    let store = RedisServer::start();
    let proxy = Proxy::start(&store.address()).await;
    let goes = || {
        proxy.refuse();
        proxy.cut_all();
    };
    is_503_without_a_run(&proxy.url(), &KEYS, goes, || proxy.listen()).await;
}

/// A claim whose reply is lost is repeated, or yields 503. The handler runs once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_a_lost_response_runs_once() {
    let store = RedisServer::start();
    let proxy = Proxy::start(&store.address()).await;
    let server = server(&proxy.url()).await;
    let mut client = Client::connect(server.address).await;
    for (number, fault) in FAULTS.into_iter().enumerate() {
        proxy.fail_next(fault);
        works_again(&server, &mut client, &format!("k{number}"), &format!("sku{number}")).await;
    }
    assert_eq!((proxy.met(), server.shop.total()), (5, 5));
}

/// A completion whose reply is lost is repeated: a retry finds the response, and nothing runs twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_with_a_lost_response_is_recorded() {
    let store = RedisServer::start();
    let proxy = Proxy::start(&store.address()).await;
    let executor = redis(&proxy.url(), WAIT).await;
    // The lease needs no renewal during the test, so the fault hits the completion.
    let server = Server::of(executor.clone(), IdempotencyLayer::new(executor, principal())).await;
    let mut client = Client::connect(server.address).await;
    for (number, fault) in (1..).zip(FAULTS) {
        let (key, sku) = (format!("k{number}"), format!("sku{number}"));
        client.send(&Ask::order(&key, &sku).hold(number).bytes()).await;
        until("it runs", async || server.shop.count(&sku) == 1).await;
        proxy.fail_next(fault);
        server.shop.open(number);
        let order = client.answer().await.made();
        let mut answer = client.ask(&Ask::order(&key, &sku)).await;
        until("it is recorded", async || {
            if answer.status != 201 {
                answer = client.ask(&Ask::order(&key, &sku)).await;
            }
            answer.status == 201
        })
        .await;
        assert_eq!((answer.replayed(), server.shop.count(&sku)), (order, 1), "{fault:?}");
    }
    assert_eq!(proxy.met(), 5);
}

/// The effect has happened, so the client receives the response. After the outage its key is recorded, or free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_completes_during_an_outage_returns_its_response() {
    let store = RedisServer::start();
    let proxy = Proxy::start(&store.address()).await;
    let server = server(&proxy.url()).await;
    let mut client = Client::connect(server.address).await;
    client.send(&Ask::order("k", "lamp").hold(1).bytes()).await;
    until("it runs", async || server.shop.count("lamp") == 1).await;
    proxy.refuse();
    proxy.cut_all();
    server.shop.open(1);
    client.answer().await.made();
    unavailable(&client.ask(&Ask::order("k", "lamp")).await);
    assert_eq!(server.shop.count("lamp"), 1);
    proxy.listen();
    until("the store is back", async || client.ask(&Ask::order("k", "lamp")).await.status == 201).await;
    // Recorded late, or taken over.
    let runs = server.shop.executions();
    assert!(runs.len() == 1 || runs[1].taken_over == Some(runs[0].fencing) && runs.len() == 2, "{runs:?}");
}

/// This is not the default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layer_that_fails_open_runs_handlers_during_an_outage() {
    let store = RedisServer::start();
    let executor: Executor = redis(&store.url(), WAIT).await;
    let layer = IdempotencyLayer::new(executor.clone(), principal()).fail_open(true);
    let server = Server::of(executor, layer).await;
    let mut client = Client::connect(server.address).await;
    store.kill();
    for runs in 1..=3 {
        client.ask(&Ask::order("k", "lamp")).await.made();
        assert_eq!(server.shop.count("lamp"), runs);
    }
    store.restart();
    until("it is protected again", async || client.ask(&Ask::order("k", "lamp")).await.is_replay()).await;
}

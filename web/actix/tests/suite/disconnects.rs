//! Clients that disconnect, and runs that outlive a worker.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::{Next, from_fn};
use actix_web::web;
use idempotent_actix_web::IdempotencyMiddleware;
use idempotent_core::{Executor, MemoryStore};
use idempotent_http_decisions::{Client, Shop, until};
use idempotent_tower::IdempotencyLayer;

use crate::support::{Server, SlowClaims, layer, layer_on, order_by, routes};

/// Counts the requests whose futures are gone, with or without a response.
#[derive(Clone, Default)]
struct Gone(Arc<AtomicU32>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Starts a server of the shop, and returns the number of requests that are gone.
pub(crate) fn watched(shop: &Shop, layer: IdempotencyLayer) -> (Server, Arc<AtomicU32>) {
    let gone = Arc::new(AtomicU32::new(0));
    let (counter, once, services) = (gone.clone(), IdempotencyMiddleware::new(layer), routes(shop));
    let server = Server::of(1, move |config| {
        let counter = counter.clone();
        let watch = from_fn(move |request: ServiceRequest, next: Next<_>| watch(counter.clone(), request, next));
        config.service(web::scope("").wrap(once.clone()).wrap(watch).configure(services.clone()));
    });
    (server, gone)
}

async fn watch<B: MessageBody>(
    counter: Arc<AtomicU32>,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, actix_web::Error> {
    let _gone = Gone(counter);
    next.call(request).await
}

/// Sends a request whose handler waits, and disconnects.
pub(crate) async fn begin_and_disconnect(server: &Server, gone: &AtomicU32, shop: &Shop) {
    let mut client = Client::connect(server.address).await;
    client.send(&order_by("a").hold(1).bytes()).await;
    until("the run", async || shop.runs() > 0).await;
    drop(client);
    until("the server drops the request", async || gone.load(SeqCst) > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_handler_continues_without_its_client_and_a_retry_receives_the_response() {
    let shop = Shop::default();
    let (server, gone) = watched(&shop, layer());
    begin_and_disconnect(&server, &gone, &shop).await;
    let mut other = Client::connect(server.address).await;
    other.ask(&order_by("a")).await.is(409, "in-flight");
    assert_eq!(shop.completed(), 0);
    shop.open();
    until("the replay", async || other.ask(&order_by("a")).await.is_replay()).await;
    assert_eq!((shop.runs(), shop.completed()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_can_be_dropped_with_its_client_and_a_retry_takes_over_after_the_lease() {
    let shop = Shop::default();
    let lease = Duration::from_secs(1);
    let (server, gone) = watched(&shop, layer().lease(lease).cancel_on_disconnect(true));
    begin_and_disconnect(&server, &gone, &shop).await;
    until("the handler is dropped", async || shop.waiting() == 0).await;
    shop.open();
    let mut other = Client::connect(server.address).await;
    until("the takeover", async || other.ask(&order_by("a")).await.status == 201).await;
    // The first handler was dropped before the gate opened.
    assert_eq!((shop.runs(), shop.completed()), (2, 1));
    let attempts = shop.attempts();
    assert_eq!(attempts[1].1, Some(attempts[0].0));
}

/// The request leaves its connection before the store replies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_disconnects_during_the_claim_does_not_stop_the_request() {
    let shop = Shop::default();
    let store = SlowClaims::new(MemoryStore::new());
    let (server, gone) = watched(&shop, layer_on(Executor::new(store.clone())));
    let mut client = Client::connect(server.address).await;
    client.send(&order_by("a").bytes()).await;
    store.made.acquire().await.unwrap().forget();
    drop(client);
    until("the server drops the request", async || gone.load(SeqCst) > 0).await;
    assert_eq!(shop.runs(), 0);
    store.may.add_permits(100);
    until("the run", async || shop.completed() == 1).await;
    assert!(Client::connect(server.address).await.ask(&order_by("a")).await.status < 500);
    assert_eq!(shop.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_worker_has_stopped_is_taken_over_after_its_lease() {
    let (shop, store) = (Shop::default(), MemoryStore::new());
    let on = || layer_on(Executor::new(store.clone())).lease(Duration::from_secs(1));
    let first = Server::of_shop(&shop, on());
    let mut client = Client::connect(first.address).await;
    client.send(&order_by("a").hold(1).bytes()).await;
    until("the run", async || shop.runs() == 1).await;
    first.handle.stop(false).await;
    until("the handler is dropped", async || shop.waiting() == 0).await;
    shop.open();
    let second = Server::of_shop(&shop, on());
    let mut client = Client::connect(second.address).await;
    until("the takeover", async || client.ask(&order_by("a")).await.status == 201).await;
    let attempts = shop.attempts();
    assert_eq!((shop.runs(), shop.completed(), attempts[1].1), (2, 1, Some(attempts[0].0)));
}

/// The key is held without a handler only until the lease expires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_worker_has_stopped_is_free_after_its_lease() {
    let (shop, memory) = (Shop::default(), MemoryStore::new());
    let slow = SlowClaims::new(memory.clone());
    let first = Server::of_shop(&shop, layer_on(Executor::new(slow.clone())).lease(Duration::from_secs(1)));
    let mut client = Client::connect(first.address).await;
    client.send(&order_by("a").bytes()).await;
    slow.made.acquire().await.unwrap().forget();
    first.handle.stop(false).await;
    let second = Server::of_shop(&shop, layer_on(Executor::new(memory)));
    let mut client = Client::connect(second.address).await;
    until("a run", async || client.ask(&order_by("a")).await.status == 201).await;
    assert_eq!(shop.runs(), 1);
}

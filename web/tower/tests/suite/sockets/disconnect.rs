//! Clients that disconnect.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore};
use idempotent_tower::IdempotencyLayer;
use tokio::sync::Semaphore;

use crate::sockets::support::shop::principal;
use crate::sockets::support::stores::SlowClaims;
use crate::sockets::support::{Answer, Ask, Backing, Client, Server, Shop, on_each_store, until};

on_each_store! {
    a_handler_completes_after_its_client_disconnects_and_a_retry_receives_its_response;
}

/// Sends a request, waits for its handler, and disconnects. Returns when the server has noticed.
async fn hang_up_midway(server: &Server, ask: &Ask) {
    let (before, unanswered) = (server.shop.total(), server.shop.unanswered());
    let mut client = Client::connect(server.address).await;
    client.send(&ask.bytes()).await;
    until("its handler runs", async || server.shop.total() > before).await;
    drop(client);
    noticed(&server.shop, unanswered).await;
}

async fn noticed(shop: &Shop, before: usize) {
    until("the server notices", async || shop.unanswered() > before).await;
}

/// Retries as long as the response is 409.
async fn once_not_in_flight(client: &mut Client, ask: &Ask) -> Answer {
    let mut answer = client.ask(ask).await;
    until("its key is not in flight", async || {
        if answer.status == 409 {
            answer = client.ask(ask).await;
        }
        answer.status != 409
    })
    .await;
    answer
}

async fn a_handler_completes_after_its_client_disconnects_and_a_retry_receives_its_response(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    hang_up_midway(&server, &Ask::order("k", "lamp").hold(1)).await;
    let mut retry = Client::connect(server.address).await;
    // The handler continues; otherwise this request would run it again.
    retry.ask(&Ask::order("k", "lamp")).await.is(409, "in-flight");
    server.shop.open(1);
    let answer = once_not_in_flight(&mut retry, &Ask::order("k", "lamp")).await;
    assert!(answer.replayed().ends_with("-1"), "of the first run");
    assert_eq!((server.shop.count("lamp"), server.shop.cut_off()), (1, 0));
}

/// Many at once: the disconnect of one client does not affect another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_handlers_complete_after_their_clients_disconnect() {
    let server = Server::start().await;
    let mut clients = Vec::new();
    for number in 0..50 {
        let mut client = Client::connect(server.address).await;
        client.send(&Ask::order(&format!("k{number}"), &format!("sku{number}")).hold(1).bytes()).await;
        clients.push(client);
    }
    until("all run", async || server.shop.total() == 50).await;
    clients.clear();
    until("the server notices", async || server.shop.unanswered() == 50).await;
    server.shop.open(1);
    until("all are recorded", async || server.executor.counts().of("ran") == 50).await;
    let mut retry = Client::connect(server.address).await;
    for number in 0..50 {
        retry.ask(&Ask::order(&format!("k{number}"), &format!("sku{number}"))).await.replayed();
    }
    assert_eq!((server.shop.total(), server.shop.cut_off()), (50, 0));
}

/// Its effect is unknown, so the key stays held until the lease expires, and the next run learns of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_started_handler_cancelled_on_disconnect_is_taken_over_after_its_lease() {
    let lease = Duration::from_secs(4);
    let server = Server::with(|layer| layer.cancel_on_disconnect(true).lease(lease)).await;
    hang_up_midway(&server, &Ask::order("k", "lamp").hold(1)).await;
    until("the handler is dropped", async || server.shop.cut_off() == 1).await;
    let mut retry = Client::connect(server.address).await;
    let mut refused = 0;
    until("the lease ends", async || {
        let answer = retry.ask(&Ask::order("k", "lamp")).await;
        refused += usize::from(answer.status == 409);
        answer.status == 201
    })
    .await;
    let [first, second] = &server.shop.executions()[..] else { panic!("{:?}", server.shop.executions()) };
    assert!(refused > 0 && second.taken_over == Some(first.fencing), "{refused} refused, {first:?}, {second:?}");
}

/// Starts a shop whose store has granted a claim but not replied when the client disconnects.
async fn gone_at_the_claim(set: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> (Server, Arc<Semaphore>) {
    let (made, may) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let executor = Executor::new(SlowClaims { inner: MemoryStore::new(), made: made.clone(), may: may.clone() });
    let layer = set(IdempotencyLayer::new(executor.clone(), principal()));
    let server = Server::of(executor, layer).await;
    let mut client = Client::connect(server.address).await;
    client.send(&Ask::order("k", "lamp").bytes()).await;
    made.acquire().await.unwrap().forget();
    drop(client);
    noticed(&server.shop, 0).await;
    (server, may)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_cancelled_before_its_start_frees_its_key_at_once() {
    let (server, may) = gone_at_the_claim(|layer| layer.cancel_on_disconnect(true)).await;
    may.add_permits(1_000_000);
    let mut retry = Client::connect(server.address).await;
    once_not_in_flight(&mut retry, &Ask::order("k", "lamp")).await.made();
    // After an expired lease, this run would have taken over.
    let runs = server.shop.executions();
    assert!(runs.len() == 1 && runs[0].taken_over.is_none(), "{runs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_runs_even_if_its_client_disconnects_before_its_start() {
    let (server, may) = gone_at_the_claim(|layer| layer).await;
    assert_eq!(server.shop.total(), 0);
    may.add_permits(1_000_000);
    until("it is recorded", async || server.executor.counts().of("ran") == 1).await;
    let mut retry = Client::connect(server.address).await;
    retry.ask(&Ask::order("k", "lamp")).await.replayed();
    assert_eq!(server.shop.total(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_yields_500_frees_the_key_and_keeps_the_connection_open() {
    let server = Server::start().await;
    let mut client = Client::connect(server.address).await;
    for panics in 1..=3 {
        client.ask(&Ask::order("k", "lamp").answer("panic")).await.is(500, "handler-panicked");
        assert_eq!(server.shop.count("lamp"), panics);
    }
    let order = client.ask(&Ask::order("k", "lamp")).await.made();
    assert_eq!(client.ask(&Ask::order("k", "lamp")).await.replayed(), order);
    assert_eq!(server.shop.count("lamp"), 4);
    // A panic after an await has the same effect.
    client.send(&Ask::order("k2", "later").hold(1).answer("panic").bytes()).await;
    until("it runs", async || server.shop.count("later") == 1).await;
    server.shop.open(1);
    client.answer().await.is(500, "handler-panicked");
    client.ask(&Ask::order("k2", "later")).await.made();
    assert_eq!(server.shop.count("later"), 2);
}

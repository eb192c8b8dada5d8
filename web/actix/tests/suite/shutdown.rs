//! Drains, and the graceful shutdown of a server.
use idempotent_core::{Executor, MemoryStore};
use idempotent_http_decisions::{Client, PATIENCE, Shop, until};

use crate::disconnects::{begin_and_disconnect, watched};
use crate::support::{Server, layer_on, order_by};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_runs_and_refuses_new_ones() {
    let (shop, executor) = (Shop::default(), Executor::new(MemoryStore::new()));
    let server = Server::of_shop(&shop, layer_on(executor.clone()));
    let mut with_client = Client::connect(server.address).await;
    with_client.send(&order_by("a").hold(1).bytes()).await;
    let mut gone = Client::connect(server.address).await;
    gone.send(&order_by("b").hold(1).bytes()).await;
    until("both runs", async || shop.runs() == 2).await;
    drop(gone);
    let draining = executor.clone();
    let drain = tokio::spawn(async move { draining.drain(PATIENCE).await });
    until("the drain", async || executor.is_draining()).await;
    let mut other = Client::connect(server.address).await;
    other.ask(&order_by("c")).await.is(503, "draining");
    assert!(!drain.is_finished());
    shop.open();
    let drained = drain.await.unwrap();
    assert_eq!((drained.finished, drained.abandoned), (2, 0));
    assert_eq!(with_client.answer().await.status, 201);
    // Only now may the workers stop: they drop the runs of clients that have disconnected.
    server.handle.stop(true).await;
    assert_eq!((shop.runs(), shop.completed()), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_cuts_off_long_runs_with_a_problem() {
    let (shop, executor) = (Shop::default(), Executor::new(MemoryStore::new()));
    let server = Server::of_shop(&shop, layer_on(executor.clone()));
    let mut client = Client::connect(server.address).await;
    client.send(&order_by("a").hold(1).bytes()).await;
    until("the run", async || shop.runs() == 1).await;
    let drained = executor.drain(std::time::Duration::ZERO).await;
    assert_eq!((drained.finished, drained.abandoned), (0, 1));
    client.answer().await.is(503, "draining");
    assert_eq!(shop.completed(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_stop_lets_a_connected_client_receive_its_response() {
    let (shop, executor) = (Shop::default(), Executor::new(MemoryStore::new()));
    let server = Server::of_shop(&shop, layer_on(executor));
    let mut client = Client::connect(server.address).await;
    client.send(&order_by("a").hold(1).bytes()).await;
    until("the run", async || shop.runs() == 1).await;
    let stopping = tokio::spawn(server.handle.stop(true));
    until("the listener closes", async || tokio::net::TcpStream::connect(server.address).await.is_err()).await;
    shop.open();
    assert_eq!(client.answer().await.status, 201);
    stopping.await.unwrap();
}

/// The reason for a drain before the stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_without_a_drain_drops_a_run_without_a_client() {
    let shop = Shop::default();
    let (server, gone) = watched(&shop, layer_on(Executor::new(MemoryStore::new())));
    begin_and_disconnect(&server, &gone, &shop).await;
    server.handle.stop(true).await;
    until("the handler is dropped", async || shop.waiting() == 0).await;
    assert_eq!((shop.runs(), shop.completed()), (1, 0));
}

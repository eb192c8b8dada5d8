//! HTTP/1.1 pipelining: requests that do not wait for the responses before them.
use crate::sockets::support::{Ask, Backing, Client, Server, on_each_store, until};

on_each_store! {
    ten_equal_requests_in_one_write_run_once;
    requests_with_different_keys_in_one_write_run_once_each_in_order;
}

async fn ten_equal_requests_in_one_write_run_once(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let mut client = Client::connect(server.address).await;
    client.send(&Ask::order("k", "lamp").bytes().repeat(10)).await;
    let order = client.answer().await.made();
    for _ in 1..10 {
        assert_eq!(client.answer().await.replayed(), order);
    }
    assert_eq!(server.shop.count("lamp"), 1);
}

async fn requests_with_different_keys_in_one_write_run_once_each_in_order(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let mut client = Client::connect(server.address).await;
    let asks: Vec<_> = (0..20).map(|number| Ask::order(&format!("k{number}"), &format!("sku{number}"))).collect();
    let bytes: Vec<_> = asks.iter().flat_map(Ask::bytes).collect();
    client.send(&bytes).await;
    let mut orders = Vec::new();
    for _ in 0..20 {
        orders.push(client.answer().await.made());
    }
    let ran: Vec<_> = server.shop.executions().into_iter().map(|run| run.sku).collect();
    assert_eq!(ran, (0..20).map(|number| format!("sku{number}")).collect::<Vec<_>>());
    client.send(&bytes).await;
    for order in orders {
        assert_eq!(client.answer().await.replayed(), order);
    }
    assert_eq!(server.shop.total(), 20);
}

/// A failed request frees the key before the server reads the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_and_its_retry_in_one_write_run_both() {
    let server = Server::start().await;
    let mut client = Client::connect(server.address).await;
    let failing = Ask::order("k", "lamp").answer("500").bytes();
    client
        .send(&[failing.clone(), failing, Ask::order("k", "lamp").bytes(), Ask::order("k", "lamp").bytes()].concat())
        .await;
    assert_eq!([client.answer().await.status, client.answer().await.status], [500, 500]);
    let order = client.answer().await.made();
    assert_eq!(client.answer().await.replayed(), order);
    assert_eq!(server.shop.count("lamp"), 3);
}

/// A pipelined request behind a running one is not lost when the client disconnects: it never began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_pipelined_after_a_slow_one_runs_later_on_its_own_connection_or_not_at_all() {
    let server = Server::start().await;
    let mut client = Client::connect(server.address).await;
    client.send(&[Ask::order("k1", "first").hold(1).bytes(), Ask::order("k2", "second").bytes()].concat()).await;
    until("the first runs", async || server.shop.count("first") == 1).await;
    // Another connection finds the first request in flight, and no trace of the second.
    let mut other = Client::connect(server.address).await;
    other.ask(&Ask::order("k1", "first")).await.is(409, "in-flight");
    let second = other.ask(&Ask::order("k2", "second")).await.made();
    server.shop.open(1);
    client.answer().await.made();
    assert_eq!(client.answer().await.replayed(), second);
    assert_eq!((server.shop.count("first"), server.shop.count("second")), (1, 1));
}

//! Clients that disconnect, and connections that stay open.
use crate::sockets::support::{Ask, Backing, Client, Server, on_each_store, until};

on_each_store! {
    a_handler_completes_after_its_client_disconnects_and_a_retry_receives_its_response;
}

async fn a_handler_completes_after_its_client_disconnects_and_a_retry_receives_its_response(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let mut client = Client::connect(server.address).await;
    client.send(&Ask::order("k", "lamp").hold(1).bytes()).await;
    until("its handler runs", async || server.shop.total() > 0).await;
    drop(client);
    until("the server notices", async || server.shop.unanswered() > 0).await;
    let (mut retry, ask) = (Client::connect(server.address).await, Ask::order("k", "lamp"));
    // The handler continues; otherwise this request would run it again.
    let mut answer = retry.ask(&ask).await;
    answer.is(409, "in-flight");
    server.shop.open(1);
    until("its key is not in flight", async || {
        answer = retry.ask(&ask).await;
        answer.status != 409
    })
    .await;
    assert!(answer.replayed().ends_with("-1"), "of the first run");
    assert_eq!((server.shop.count("lamp"), server.shop.cut_off()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_yields_500_frees_the_key_and_keeps_the_connection_open() {
    let server = Server::start().await;
    let mut client = Client::connect(server.address).await;
    for _ in 0..3 {
        client.ask(&Ask::order("k", "lamp").answer("panic")).await.is(500, "handler-panicked");
    }
    client.ask(&Ask::order("k", "lamp")).await.made();
    assert_eq!(server.shop.count("lamp"), 4);
}

//! Request bodies that arrive slowly, or never completely.
use crate::sockets::support::{Ask, Backing, Client, Server, on_each_store, until};

on_each_store! {
    a_slow_upload_holds_no_claim;
    an_aborted_upload_claims_nothing;
}

/// Sends the head and part of the body, waits until the layer reads it, and returns the rest.
async fn upload(server: &Server, ask: &Ask, body: usize) -> (Client, Vec<u8>) {
    let ask = ask.clone().header("expect", "100-continue");
    let (bytes, head) = (ask.bytes(), ask.head().len());
    let mut client = Client::connect(server.address).await;
    client.send(&bytes[..head]).await;
    // The server sends `100 Continue` only when the layer polls the body.
    assert_eq!(client.answer().await.status, 100);
    client.send(&bytes[head..head + body]).await;
    (client, bytes[head + body..].to_vec())
}

async fn a_slow_upload_holds_no_claim(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    for (number, form) in [Ask::order("k0", "lamp0"), Ask::order("k1", "lamp1").chunked(3)].into_iter().enumerate() {
        let (mut slow, rest) = upload(&server, &form, 5).await;
        let (key, sku) = (format!("k{number}"), format!("lamp{number}"));
        let mut quick = Client::connect(server.address).await;
        let order = quick.ask(&Ask::order(&key, &sku)).await.made();
        slow.send(&rest).await;
        assert_eq!(slow.answer().await.replayed(), order);
        assert_eq!(server.shop.count(&sku), 1);
    }
    assert_eq!(server.executor.counts().deliveries(), 4);
}

/// Otherwise, the other body would receive 422 or 409.
async fn an_aborted_upload_claims_nothing(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    for (number, form) in [Ask::order("k0", "lamp"), Ask::order("k1", "lamp").chunked(3)].into_iter().enumerate() {
        let over = server.shop.over();
        let (slow, _) = upload(&server, &form, 5).await;
        drop(slow);
        until("the server notices", async || server.shop.over() > over).await;
        assert_eq!((server.shop.count("lamp"), server.executor.counts().deliveries()), (0, number as u64));
        let other = Ask::order(&format!("k{number}"), "other").body("another body");
        Client::connect(server.address).await.ask(&other).await.made();
    }
    assert_eq!((server.shop.count("other"), server.shop.count("lamp")), (2, 0));
}

/// A body with all its bytes but an invalid end is incomplete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_with_broken_framing_does_not_run() {
    let server = Server::start().await;
    let head = Ask::order("k", "lamp").chunked(1).head();
    for broken in ["zz\r\n", "5\r\nabcdefgh\r\n0\r\n\r\n", "ffffffffffffffffff\r\na", "-1\r\na\r\n0\r\n\r\n"] {
        let mut client = Client::connect(server.address).await;
        client.send(&[&head, broken.as_bytes()].concat()).await;
        // The server may also close the connection.
        if let Some(answer) = client.answer_or_end().await {
            assert_eq!(answer.status, 400, "{broken:?}: {answer}");
        }
    }
    assert_eq!((server.shop.total(), server.executor.counts().deliveries()), (0, 0));
    Client::connect(server.address).await.ask(&Ask::order("k", "lamp")).await.made();
}

//! Bodies of all framings and sizes.
use crate::sockets::support::{Ask, Backing, Client, Server, on_each_store};

const MIB: usize = 1 << 20;

on_each_store! {
    the_framing_of_a_body_does_not_change_its_fingerprint;
}

async fn the_framing_of_a_body_does_not_change_its_fingerprint(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let body: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let ask = Ask::order("k", "lamp").body(body.clone());
    let mut client = Client::connect(server.address).await;
    let order = client.ask(&ask.clone().chunked(1_000)).await.made();
    assert_eq!(client.ask(&ask).await.replayed(), order);
    for chunk in [1, 7, 4_096, 10_000] {
        assert_eq!(client.ask(&ask.clone().chunked(chunk)).await.replayed(), order, "{chunk}");
    }
    // One segment for each piece.
    for piece in ask.bytes().chunks(999) {
        client.send(piece).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.answer().await.replayed(), order);
    // One byte more, less or different makes another body.
    let mut other = body.clone();
    other[5_000] ^= 1;
    for body in [&body[..9_999], &[&body[..], b"x"].concat(), &other, b""] {
        client.ask(&Ask::order("k", "lamp").body(body)).await.is(422, "key-reused");
        client.ask(&Ask::order("k", "lamp").body(body).chunked(1_000)).await.is(422, "key-reused");
    }
    let runs = server.shop.executions();
    assert!(runs.len() == 1 && runs[0].bytes == 10_000, "{runs:?}");
}

/// A rejected body is not parsed as requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_inside_a_rejected_body_runs() {
    let server = Server::start().await;
    let inside = Ask::order("inside", "smuggled").bytes();
    let body: Vec<u8> = inside.iter().copied().cycle().take(2 * MIB + inside.len()).collect();
    for ask in [
        Ask::order("k", "lamp").body(body.clone()),
        Ask::order("k", "lamp").body(body.clone()).chunked(inside.len()),
        Ask::order("a,b", "lamp").body(inside.repeat(10)),
        Ask::post("/orders").sku("lamp").body(inside.repeat(10)),
    ] {
        let mut client = Client::connect(server.address).await;
        client.try_send(&[ask.bytes(), Ask::order("after", "after").bytes()].concat()).await;
        let refused = client.answer().await;
        assert!(matches!(refused.status, 400 | 413), "{refused}");
        // The bytes after the body are a request, if the connection stays open.
        if let Some(answer) = client.answer_or_end().await {
            assert_eq!(answer.status, 201, "{answer}");
        }
    }
    assert_eq!((server.shop.count("smuggled"), server.shop.count("lamp")), (0, 0));
    assert!(server.shop.count("after") <= 1);
}
